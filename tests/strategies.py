"""What hypothesis makes tests of."""

from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st

from em.traces.trace import Message, Mission, ToolCall, Trace


def examples(of_hundred: int) -> int:
    """Return how many examples a property gets that needs so many where others get a hundred."""
    return max(of_hundred * settings.default.max_examples // 100, 2)


scalars = st.one_of(
    st.text(max_size=12),
    st.integers(-5, 10**6),
    st.booleans(),
    st.none(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["#W1001", "ana@x.example", "{{ x }}", "{% if %}", "1151293680", "a.b", ""]),
)
keys = st.sampled_from(["id", "name", "items", "user id", "zip", "keys", "x", "class", "1"])
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3)
)
arguments = st.dictionaries(
    st.sampled_from(["id", "name", "zip", "x", "items"]), values, max_size=3
)


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Any trace: calls that use what was said and returned before, some of them failing."""
    pool: list[Any] = [draw(values) for _ in range(3)]
    events: list[Any] = []
    for _ in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from(["message", "tool", "tool", "tool", "fail"]))
        if kind == "message":
            events.append(Message(role="user", text=str(draw(st.sampled_from(pool)))))
            continue
        name = draw(st.sampled_from(["get_user", "find_order_by_id", "cancel_order", "class"]))
        args = {key: draw(st.sampled_from(pool)) for key in draw(arguments)}
        result = draw(values)
        pool.append(result)
        if isinstance(result, dict):
            pool += result.values()
        error = "Error: no" if kind == "fail" else None
        events.append(ToolCall(tool=name, args=args, result=result, error=error))
    if not any(isinstance(event, ToolCall) for event in events):
        events.append(ToolCall(tool="get_user", result=1))
    mission = draw(st.dictionaries(st.sampled_from(["id", "city", "only"]), values, max_size=2))
    output = draw(st.sampled_from([msgspec.UNSET, *pool]))
    return Trace(mission=Mission("goal", mission), events=events, final_output=output)
