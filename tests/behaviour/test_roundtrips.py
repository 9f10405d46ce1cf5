"""Values come back as they were, whatever their shape; params change and nothing else does."""

import asyncio
import datetime as dt
import json
import math
import string
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from em import Engine
from em.behaviour.codec import NotEncodable, decode, encode, is_plain
from em.redaction.names import is_secret_name
from em.values.canonical import identical
from strategies import examples

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.datetimes()
    | st.dates()
    | st.times()
    | st.timedeltas()
    | st.decimals(allow_nan=False)
    | st.uuids()
    | st.complex_numbers(allow_nan=False)
)
keys = st.text() | st.integers() | st.booleans() | st.dates() | st.just("$em")
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(keys, inner, max_size=4)
        | st.sets(keys, max_size=4)
        | st.frozensets(keys, max_size=4)
    ),
    max_leaves=12,
)


def same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return len(one) == len(other) and all(
            same(a, b) for a, b in zip(one.items(), other.items(), strict=True)
        )
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


@given(values)
def test_what_is_kept_comes_back_with_all_its_types(value: Any) -> None:
    kept, form = encode(value)
    assert is_plain(kept) or form == "tagged"
    back = decode(json.loads(json.dumps(kept)), form)
    assert same(back, value)


def test_what_json_has_no_word_for_is_kept_or_refused() -> None:
    kept, form = encode(math.nan)
    assert math.isnan(decode(kept, form))
    assert decode(*encode(2**200)) == 2**200
    assert decode(*encode(dt.timedelta.max)) == dt.timedelta.max
    deep: Any = []
    for _ in range(200):
        deep = [deep]
    for odd in (object(), "\ud800", deep, [lambda: 1]):
        with pytest.raises(NotEncodable):
            encode(odd)


# Params are written in capitals and constants are not, so that a value tells what it is.
param_values = st.text(string.ascii_uppercase + "ÄÖÜ", min_size=1, max_size=8) | st.integers(
    2, 10**9
)
constants = (
    st.none() | st.booleans() | st.text(string.ascii_lowercase + " {}%'\"\\\n-_", max_size=8)
)
pieces = constants | st.sampled_from(["$a", "$b"])
keys = st.text(string.ascii_lowercase, max_size=4).filter(lambda key: not is_secret_name(key))
shapes = st.recursive(
    pieces | st.lists(pieces.filter(lambda piece: isinstance(piece, str)), max_size=4).map(tuple),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=10,
)


def build(shape: Any, params: dict[str, Any]) -> Any:
    """A shape with params in it; a tuple is a text put together of its parts."""
    if isinstance(shape, tuple):
        return " ".join(str(build(part, params)) for part in shape)
    if isinstance(shape, list):
        return [build(item, params) for item in shape]
    if isinstance(shape, dict):
        return {key: build(item, params) for key, item in shape.items()}
    return params[shape[1]] if shape in ("$a", "$b") else shape


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@example(("-a", "$b"), ("-a", "$b"), ("A", "AA"), ("A", "Ä"))
@example(["$a"], [("$a", "$b")], ("A", "AAAA"), ("AA", "A"))
@example([("", "$a")], [("$a", "")], ("B", "A"), ("AA", "A"))
@given(
    shapes,
    shapes,
    st.tuples(param_values, param_values),
    st.tuples(param_values, param_values),
)
def test_a_replay_makes_the_call_that_the_agent_would_have_made(
    shape: Any, answer: Any, first: tuple[Any, Any], second: tuple[Any, Any]
) -> None:
    engine = Engine()
    given_values: list[Any] = []

    @engine.function()
    def tool(value: Any) -> None:
        given_values.append(value)

    def agent(a: Any, b: Any) -> Any:
        tool(build(shape, {"a": a, "b": b}))
        return build(answer, {"a": a, "b": b})

    engine.set_agent(agent)
    for a, b in (first, second, first):
        result = engine(a, b, params=["a", "b"])
        assert result.problem is None
        assert identical(given_values[-1], build(shape, {"a": a, "b": b}))
        assert identical(result.value, build(answer, {"a": a, "b": b}))
    assert result.hit
    engine.close()


ids = [st.integers(1, 10**6), st.from_regex(r"[a-f][0-9][0-9a-f]{1,8}", fullmatch=True)]
two_ids = st.one_of([st.lists(one, min_size=2, max_size=2, unique=True) for one in ids])


@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(two_ids, st.sampled_from(["whole", "id", "deep"]))
def test_an_id_that_a_result_gave_is_always_this_runs(two: list[Any], where: str) -> None:
    engine = Engine()
    used: list[Any] = []
    new = iter([*two, two[0]])

    @engine.function()
    def create() -> Any:
        own = next(new)
        return {"whole": own, "id": {"id": own}, "deep": {"order": {"order_id": own}}}[where]

    @engine.function()
    def use(order_id: Any) -> None:
        used.append(order_id)

    def agent() -> Any:
        made = create()
        own = {
            "whole": lambda: made,
            "id": lambda: made["id"],
            "deep": lambda: made["order"]["order_id"],
        }[where]()
        use(own)
        return {"order_id": own}

    engine.set_agent(agent)
    results = [engine() for _ in range(3)]
    assert used == [*two, two[0]]
    assert [result.value["order_id"] for result in results] == used
    assert results[-1].hit, "a small one is known for the result's by a second recording"
    engine.close()


@settings(max_examples=examples(25), deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), min_size=1, max_size=12))
def test_plain_and_async_engines_do_the_same(calls: list[tuple[str, int]]) -> None:
    """The same calls in the same worlds give the same outcomes, plainly and under asyncio."""

    def outcomes(*, is_async: bool) -> list[tuple[str, str, Any]]:
        from em import Check

        state = [0]
        engine = Engine()
        check = Check(lambda: state[0], lambda now, then: now == then)
        told = []
        if is_async:

            @engine.function()
            async def first(task: str) -> str:
                return f"first {task}"

            @engine.function(pre_check=check)
            async def second(text: str) -> str:
                return text + "!"

            async def agent(task: str, progress: Any) -> str:
                done = progress.done[0].result if progress else await first(task)
                return await second(done)

            engine.set_agent(agent)
        else:
            plain_first = engine.function(name="first")(lambda task: f"first {task}")
            plain_second = engine.function(pre_check=check, name="second")(lambda text: text + "!")

            def plain(task: str, progress: Any) -> str:
                done = progress.done[0].result if progress else plain_first(task)
                return str(plain_second(done))

            engine.set_agent(plain)
        for task, state[0] in calls:
            outcome = engine(task)
            result = asyncio.run(outcome) if is_async else outcome
            told.append((result.how, result.reason, result.value))
        engine.close()
        return told

    assert outcomes(is_async=False) == outcomes(is_async=True)
