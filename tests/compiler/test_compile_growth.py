"""Compiling costs in proportion to what was recorded: calls of functions are counted, not time."""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec
import pytest
from bench.learn.speed import Shop
from bench.right import times

from em.compiler.compile_trace import compile_several, compile_trace
from em.compiler.replay_world import Renaming
from em.traces.trace import KeptTrace, Mission, ToolCall, Trace, as_kept


def counted(work: Callable[[], Any]) -> int:
    """How many calls of functions some work takes."""
    calls = 0

    def count(_frame: Any, event: str, _arg: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def read(tool: str, args: dict[str, Any], result: Any) -> ToolCall:
    return ToolCall(tool=tool, args=args, result=result, effect="read")


def write(tool: str, args: dict[str, Any]) -> ToolCall:
    return ToolCall(tool=tool, args=args, result={"ok": True}, effect="write")


def labels(count: int) -> list[tuple[str, dict[str, Any]]]:
    return [(f"SKU-{n:05}", {"sku": f"SKU-{n:05}", "price": n + 0.25}) for n in range(count)]


def looked_up_first(count: int) -> Trace:
    """All prices are looked up, then all labels are written."""
    rows = labels(count)
    stock = read("list_stock", {}, {"skus": [sku for sku, _ in rows]})
    reads = [read("get_price", {"sku": sku}, price) for sku, price in rows]
    writes = [write("set_label", price) for _, price in rows]
    return Trace(mission=Mission("Label all"), events=[stock, *reads, *writes], outcome="success")


def for_a_typed_list(count: int) -> Trace:
    """The same for a list that was given."""
    trace = looked_up_first(count)
    mission = Mission("Label all", {"skus": [sku for sku, _ in labels(count)]})
    return msgspec.structs.replace(trace, mission=mission, events=trace.events[1:])


def chosen_from_many(count: int) -> Trace:
    """One record of a long list is written, the one that was asked for."""
    rows = [{"order": f"W{n:06}", "owner": f"U{n * 7919 % 10**6:06}"} for n in range(count)]
    asked = rows[count // 3]
    events = [
        read("list_orders", {}, {"orders": rows}),
        write("close", {"order": asked["order"], "owner": asked["owner"]}),
    ]
    mission = Mission("Close an order", {"order": asked["order"]})
    return Trace(mission=mission, events=events, outcome="success")


@pytest.mark.parametrize(
    "make", [times.rows, times.calls, looked_up_first, for_a_typed_list, chosen_from_many]
)
def test_ten_times_as_much_in_a_trace_costs_ten_times_as_much(make: Callable[[int], Trace]) -> None:
    few, many = make(40), make(400)
    compile_trace(few)
    small, large = (counted(partial(compile_trace, one)) for one in (few, many))
    assert large < 13 * small, (small, large)


def recorded(numbers: Sequence[int]) -> list[KeptTrace]:
    return [as_kept(msgspec.convert(Shop(n).trace(), Trace), f"t{n}") for n in numbers]


def test_five_times_as_many_recordings_cost_five_times_as_much() -> None:
    few, many = recorded(range(30)), recorded(range(150))
    compile_several(few, name="refund")
    compiled = partial(compile_several, name="refund")
    small, large = (counted(partial(compiled, one)) for one in (few, many))
    assert large < 6.5 * small, (small, large)


@pytest.mark.parametrize(("word", "last"), [("00007", 9), ("0007", 9_999)])
def test_ids_that_count_up_leave_other_words_or_none(word: str, last: int) -> None:
    """Every word with the same zeros is taken; of four digits every word is."""
    taken = [f"N-{number:0{len(word)}}" for number in range(last + 1)]
    new = Renaming([f"N-{word}"], taken).of(f"N-{word}")
    assert (new not in taken) is (last == 9)
    assert new == f"N-{word}" or (len(new), new[:2]) == (len(word) + 2, "N-")
