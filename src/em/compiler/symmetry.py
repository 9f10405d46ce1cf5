"""Symmetry: reads that return the same when their two arguments change places.

Agents ask for the distance of A and B, and of B and A. Traces that had both orders show that it is
the same question, so what is learnt need not tell them apart.
"""

from collections.abc import Collection, Iterable

import msgspec

from em.compiler.calls import TracedCall
from em.compiler.homes import Example
from em.compiler.sources import quoted
from em.values.canonical import Json


def symmetric_reads(examples: Iterable[Example]) -> frozenset[str]:
    """Return the tools with two arguments that were made both ways, with one result each time."""
    results: dict[tuple[str, str], set[str]] = {}
    asked: dict[tuple[str, str], set[str]] = {}
    for call in (call for one in examples for call in one.calls):
        if call.effect == "read" and len(call.args) == 2:
            key = (call.name, _unordered(call))
            results.setdefault(key, set()).add(quoted(call.result))
            asked.setdefault(key, set()).add(quoted(call.args))
    both = {key for key, args in asked.items() if len(args) > 1}
    denied = {tool for tool, key in both if len(results[tool, key]) > 1}
    return frozenset(tool for tool, _ in both) - denied


def _unordered(call: TracedCall) -> str:
    names = sorted(call.args)
    return quoted([names, sorted(quoted(call.args[name]) for name in names)])


def in_order(call: TracedCall, example: Example) -> TracedCall:
    """Return a symmetric call with its arguments in the order in which reads gave them."""
    first, second = call.args

    def given(value: object) -> int:
        return min((place.call for place in example.places_of(value, call)), default=len(call.args))

    if given(call.args[second]) < given(call.args[first]):
        args = {first: call.args[second], second: call.args[first]}
        return msgspec.structs.replace(call, args=args)
    return call


def sorted_args(tool: str, args: Json, symmetric: Collection[str]) -> Json:
    """Return the arguments of a call; those of a symmetric read in an order of their own."""
    if tool not in symmetric:
        return args
    return dict(zip(sorted(args), sorted(args.values(), key=quoted), strict=True))


def with_sorted_args(example: Example, symmetric: Collection[str]) -> Example:
    """Return a task in which symmetric reads that ask for the same are equal."""
    calls = [
        msgspec.structs.replace(call, args=sorted_args(call.name, call.args, symmetric))
        if call.name in symmetric
        else call
        for call in example.calls
    ]
    return Example(calls, example.said, example.earlier, example.refused)
