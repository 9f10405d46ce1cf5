"""Where a value may have come from: every leaf of every result that was there by then."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from em.behaviour.tape import Call
from em.compiler.calls import infer_effect
from em.compiler.leaves import Path, Scalar, Segment, leaves
from em.compiler.names import words_of
from em.compiler.wire_text import plain_segment

_NUMBERS = ("number", "no", "nr", "id")
"""What people write before an id."""

Place = tuple[int, tuple[str | int, ...]]


class Source(NamedTuple):
    """A leaf of a call's result."""

    call: int
    path: Path
    value: Scalar

    @property
    def place(self) -> Place:
        """Which call, and where in its result."""
        return self.call, tuple(part.key for part in self.path)


def says_nothing(value: Any) -> bool:
    """Whether a value is too common to tell anything."""
    return value is None or isinstance(value, bool)


class Sources:
    """The leaves of the results so far, and when values were first used.

    names: under which each call's result is saved.
    """

    def __init__(self, calls: Sequence[Call], names: Sequence[str]) -> None:
        self._calls, self._names = calls, names
        self._by_value: dict[bytes, list[Source]] = {}
        self._by_text: dict[str, list[Source]] = {}
        self._first_use: dict[bytes, int] = {}

    def add_result(self, number: int) -> None:
        """A call's result is there."""
        for path, leaf in leaves(self._calls[number].result):
            source = Source(number, path, leaf)
            self._by_value.setdefault(msgspec.json.encode(leaf), []).append(source)
            if not says_nothing(leaf):
                self._by_text.setdefault(str(leaf), []).append(source)

    def equal(self, value: Any, *, as_text: bool = False) -> list[Source]:
        """The places of results that held this value."""
        if as_text:
            return self._by_text.get(str(value), [])
        if isinstance(value, dict | list):
            return []
        return self._by_value.get(msgspec.json.encode(value), [])

    def is_named(self, source: Source, name: str) -> bool:
        """Whether a result's field is what an argument is called: `id` will do for `order_id`."""
        plain = name.lower()
        if not plain:
            return False
        words = words_of(self._calls[source.call].tool.name)
        about = {*words, *(f"{word}s" for word in words), *(f"{word}_id" for word in words)}
        if not source.path:
            # All that `new_ticket` gave, as `ticket`; what `stock` gave is no `quantity`.
            made = (
                plain.endswith("id")
                and infer_effect(short_name(self._calls[source.call])) == "write"
            )
            return (made or plain in about) and not says_nothing(source.value)
        last = source.path[-1]
        key = str(last.key).lower()
        if last.in_collection:
            return False
        if key == "id" and (plain in about or plain in _NUMBERS):
            return True  # the id that `create_order` gave, as `order`
        return key == plain or (key == "id" and plain.endswith("id")) or plain.endswith(f"_{key}")

    def was_used_before(self, source: Source) -> bool:
        """What the agent used before the result was there did not come from it."""
        first = self._first_use.get(msgspec.json.encode(source.value))
        return first is not None and first < self._calls[source.call].ended

    def note_use(self, value: Any, tick: int) -> None:
        """A value was passed on at this moment."""
        for _, leaf in leaves(value):
            self._first_use.setdefault(msgspec.json.encode(leaf), tick)

    def expression(self, source: Source) -> str:
        """How a step names it."""
        text = self._names[source.call]
        for part in source.path:
            if not part.in_collection:
                text += plain_segment(part)
            elif isinstance(part.of, dict):
                text += plain_segment(Segment(list(part.of)[int(part.key)], False, None))
            else:
                text += f"[{part.key}]"
        return text

    def is_used(self, value: Any) -> bool:
        """Whether a value was passed on before."""
        return msgspec.json.encode(value) in self._first_use


def short_name(call: Call) -> str:
    """A tool's name without its class."""
    return call.tool.name.rpartition(".")[2]
