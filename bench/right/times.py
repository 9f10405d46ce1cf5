"""Compile time against the size of what was recorded; ratios inside one run."""

from collections.abc import Iterator
from typing import Any

from bench.figure import Figure, seconds

AT_MOST = 20


def growth() -> Iterator[Figure]:
    yield _figure("compiling an output of {:,} rows: milliseconds", rows, 1_600, 100)
    yield _figure("compiling {:,} calls: milliseconds", calls, 2_560, 160)


def _figure(what: str, make: Any, many: int, few: int) -> Figure:
    from em.compiler.compile_trace import compile_trace

    large, small = make(many), make(few)
    compile_trace(small)
    # The best of several on both sides: another process may take a part of one of them.
    theirs = min(seconds(lambda: compile_trace(small)) for _ in range(5))
    ours = min(seconds(lambda: compile_trace(large)) for _ in range(3))
    return Figure(
        what.format(many),
        ours * 1e3,
        f"with {few:,}",
        theirs * 1e3,
        "ms",
        ours / theirs,
        AT_MOST,
        False,
    )


def rows(count: int) -> Any:
    """A trace whose output is a table from two reads."""
    from em.traces.trace import Message, Mission, ToolCall, Trace

    orders = [
        {"order_id": f"W{n:05}", "customer": f"customer {n % 97}", "total": n * 1.25, "open": n % 3}
        for n in range(count)
    ]
    output = [{"order": row["order_id"], "total": row["total"]} for row in orders]
    goal = "List the orders of the north with their totals"
    return Trace(
        mission=Mission(goal),
        events=[
            Message(role="user", text=goal),
            ToolCall(tool="list_orders", args={"region": "north"}, result={"orders": orders}),
        ],
        final_output={"rows": output},
        outcome="success",
    )


def calls(count: int) -> Any:
    """A trace that looks up one thing after another, and writes half of them."""
    from em.traces.trace import Message, Mission, ToolCall, Trace

    skus = [f"SKU-{n:05}" for n in range(count // 2)]
    goal = "Label everything in stock with its price"
    events: list[Any] = [
        Message(role="user", text=goal),
        ToolCall(tool="list_stock", args={}, result={"skus": skus}),
    ]
    for number, sku in enumerate(skus):
        price = {"sku": sku, "price": 10 + 0.25 * number}
        events.append(ToolCall(tool="get_price", args={"sku": sku}, result=price))
        events.append(ToolCall(tool="set_label", args=price, result={"ok": True}))
    return Trace(mission=Mission(goal), events=events, outcome="success")
