"""Guards: what must return as recorded where a routine is followed, and which params must be given.

The routine itself is `learning`'s. This adds what the values of the recordings show beside it.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from em.behaviour.behaviour import Behaviour, Beside, Taught
from em.behaviour.learning import Lesson, Pair, is_made, pairs_of
from em.behaviour.likeness import is_fact
from em.behaviour.task import (
    HOLE,
    constant_texts,
    followed,
    is_plain,
    param_names,
    used_by,
)
from em.compiler.evidence import information
from em.errors import NotRecordable
from em.runner.expressions.language import names_in, whole_expression
from em.values.canonical import Json, identical, same
from em.values.leaves import Path, is_informative, leaves, mentioned_in, texts

ENOUGH_VALUES = 3
"""Values of a param with which the same was done: then it does not matter."""
ENOUGH = 10.0
"""Bits of a value that two places don't hold by chance."""
SMALL = 3.5
"""Values below this many bits (true, 1, 10) stand everywhere, so they say next to nothing."""
_BETWEEN = re.compile(r"[^\w.-]+")
_CHOICE = re.compile(r"\b(?:only|only_key)\([^()]*,|\b(?:smallest|largest|where)\(")


def teach(name: str, behaviours: Sequence[Behaviour]) -> Taught:
    """Return what recordings of the same calls teach; raise NotRecordable if they contradict."""
    lesson = Lesson(name, behaviours)
    guards = Guards(behaviours[-1], lesson)
    guards.refuse_hidden()
    return Taught(
        routine=lesson.document | guards.input_schema(),
        beside=[guards.beside(number) for number in range(len(behaviours[-1].steps))],
    )


class Guards:
    """What stands beside the calls of a routine, as far as the values of the recordings show it."""

    def __init__(self, behaviour: Behaviour, lesson: Lesson) -> None:
        self._task, self._calls, self._lesson = behaviour, behaviour.steps, lesson
        self._recordings = lesson.recordings
        newest = lesson.recordings[-1]
        self._results = [call.result for call in newest.calls]
        self._args = [*(call.args for call in newest.calls), newest.output]
        templates = [*lesson.args[:-1], lesson.answer]
        self._pairs = [[*pairs_of(a, t)] for a, t in zip(self._args, templates, strict=True)]
        self._names = param_names(behaviour.params)
        # What nothing explains, by call: constants, and values that the learner would ask for.
        self._open = [[*self._open_in(number)] for number in range(len(self._pairs))]
        self._parts = [[*self._parts_in(number)] for number in range(len(self._pairs))]

    def _open_in(self, number: int) -> Iterator[Pair]:
        asked = [Pair(value, None, "") for value in self._lesson.asked.get(number, ())]
        for pair in (*self._pairs[number], *asked):
            if not is_made(pair.template) and not self._is_stated(pair.value):
                yield pair

    def _is_stated(self, value: Any) -> bool:
        """Return whether the task itself has a value, apart from its params."""
        if is_plain(value) or isinstance(value, dict | list):
            return True
        own = {*self._names.values()}
        stated = {name: one for name, one in self._task.inputs.items() if name not in own}
        if isinstance(value, str) and len(value.split()) > 1:
            return any(same(leaf, value) for _, leaf in leaves(stated))
        return any(
            same(leaf, value) or (isinstance(leaf, str) and mentioned_in(value, leaf))
            for _, leaf in leaves(self._task.task)
        )

    def refuse_hidden(self) -> None:
        """Refuse an id without a source: it may come from an object that can't be inspected."""
        # An object that is passed on is a handle, such as a page; other objects were read.
        handles = {source for call in self._calls for source in call.live.values()}
        for number, pairs in enumerate(self._open):
            earlier = [(n, call) for n, call in enumerate(self._calls[:number]) if call.opaque]
            is_read = any(n not in handles for n, _ in earlier)
            for value in (pair.value for pair in pairs) if earlier else ():
                is_text = isinstance(value, str) and is_informative(value)
                is_id = _is_number(value) and value not in (0, 1, -1)
                suspect = is_id or (is_text and (is_read or any(map(str.isdigit, value))))
                if suspect and not self._is_known_before(value, number):
                    name = earlier[0][1].tool
                    raise NotRecordable(
                        f"{value!r} may come from the result of {name}, which can't be inspected",
                        place=self._place_of(value, number),
                        fix=f"let {name} return a dataclass, a model or plain values",
                    )

    def _is_known_before(self, value: Any, number: int) -> bool:
        """Return whether the task, an earlier call or its result has a value."""
        known = [self._task.inputs, *self._args[:number], *self._results[:number]]
        return any(
            same(leaf, value) or (isinstance(leaf, str) and mentioned_in(value, leaf))
            for _, leaf in leaves(known)
        )

    def _place_of(self, value: Any, number: int) -> str:
        if number == len(self._calls):
            return "the agent's return value"
        names = (
            name
            for name, arg in self._calls[number].args.items()
            if any(same(leaf, value) for _, leaf in leaves(arg))
        )
        name = next(names, "")
        return f"tool {self._calls[number].tool}" + (f", argument {name}" if name else "")

    # ---- what must return as recorded

    def beside(self, number: int) -> Beside:
        """Return what stands beside a call."""
        call = self._calls[number]
        is_watched = not call.opaque and (
            self._lesson.is_watched(number) if not call.writes else call.post is None
        )
        return Beside(
            asks=self._asks(number),
            watched=is_watched,
            free=sorted(self._free(number)) if is_watched else (),
            fixed=sorted(self._fixed(number)) if is_watched else (),
        )

    def _asks(self, number: int) -> bool:
        """Return whether a call may have been made to know something.

        Not if its name says that it writes, or if it gave something else when it was made again.
        """
        call = self._calls[number]
        again = [c for c in self._calls if c.tool == call.tool and identical(c.args, call.args)]
        is_changing = any(not identical(one.result, call.result) for one in again)
        return not call.writes or (call.reads and not is_changing)

    def _free(self, number: int) -> set[str]:
        """Return the paths of a result that later values take."""
        return {
            _path(parts) for pair, parts in self._uses(number) if self._is_sure(number, parts, pair)
        }

    def _uses(self, number: int) -> Iterator[tuple[Pair, Sequence[str | int]]]:
        """Yield what takes a part of a result, and the keys that lead to that."""
        own = self._lesson.names[number]
        for pair in (pair for pairs in self._pairs for pair in pairs):
            for name, parts in used_by([pair.template]):
                if name == own:
                    yield pair, parts

    def _is_steady(self, number: int, parts: Sequence[str | int]) -> bool:
        """Return whether a text was the same in all recordings, whatever was read."""
        asked = [one.calls[number].args for one in self._recordings]
        is_text = all(isinstance(one, str) for one in self._shown(number, parts))
        is_other = self._calls[number].reads and any(not identical(one, asked[0]) for one in asked)
        return is_text and is_other and not self._differed(number, parts)

    def _is_sure(self, number: int, parts: Sequence[str | int], pair: "Pair") -> bool:
        """Return whether a value comes from there: it says much, or is called so, or varied.

        What a write made is passed on, and seldom looked at. A fact that never varied stays.
        """
        if self._calls[number].writes:
            return True
        if any(map(is_fact, self._shown(number, parts))):
            return self._differed(number, parts)
        if not _is_whole(pair.template):
            return True
        if parts[-1:] == (pair.key,):
            return True
        if not is_fact(pair.value) and information(pair.value) >= ENOUGH:
            return True
        return self._differed(number, parts)

    def _differed(self, number: int, parts: Sequence[str | int] = ()) -> bool:
        """Return whether a part of a result was not the same in all recordings."""
        found = self._shown(number, parts)
        return any(not identical(one, found[0]) for one in found)

    def _shown(self, number: int, parts: Sequence[str | int]) -> list[Any]:
        """Return what a part of a result was in the recordings that have it."""
        found = []
        for one in self._recordings:
            part: Any = one.calls[number].result
            with suppress(LookupError, TypeError):
                for key in parts:
                    part = part[key]
                found.append(part)
        return found

    def _fixed(self, number: int) -> set[str]:
        """Return the paths of a result that may have given what nothing explains.

        What the agent used before is not from there, unless it is called like the argument or a
        write returned it. In `add(cart=1, quantity=1)` only the cart is what `open_cart` returned.
        """
        from em.compiler.space import named_alike

        if self._is_chosen_from(number):
            return {""}
        own, call = self._lesson.names[number], self._calls[number]
        known = [self._task.inputs, *self._args[: number + 1]]
        used = [leaf for _, leaf in leaves(known)]
        found = {_path(parts) for _, parts in self._uses(number) if self._is_steady(number, parts)}
        for later in range(number + 1, len(self._pairs)):
            taken = used_by([pair.template for pair in self._pairs[later]])
            for pair in (*self._open[later], *self._parts[later]):
                for path, leaf in self._holding(pair, number):
                    place: Any = tuple(part.key for part in path)
                    is_it = same(leaf, pair.value)
                    is_new = call.writes and leaf not in (0, 1, -1)
                    is_old = any(same(leaf, one) for one in used)
                    if any(part.in_collection for part in path):
                        found |= {""} if is_it and not is_old and leaf not in (0, 1, -1) else set()
                    elif is_it and (own, place) in taken:
                        continue
                    elif named_alike(place, pair.key, call.tool) or is_new or not is_old:
                        found |= {_path(place)} if not self._differed(number, place) else set()
        return found

    def _is_chosen_from(self, number: int) -> bool:
        """Return whether an element of a result is taken by what no input says."""
        name, known = self._lesson.names[number], {*self._task.inputs}
        templates = [pair.template for pairs in self._pairs[number + 1 :] for pair in pairs]
        holes = (one for text in texts(templates) for one in HOLE.findall(text))
        uses = (names_in(one.strip(), "", bare=True) for one in holes if _CHOICE.search(one))
        return any(name in used and not used & known for used in uses)

    def _parts_in(self, number: int) -> Iterator[Pair]:
        """Yield the parts of texts that no expression makes."""
        for pair in self._pairs[number]:
            if isinstance(pair.template, str) and is_made(pair.template):
                yield from (Pair(text, None, pair.key) for text in constant_texts(pair.template))

    def _holding(self, pair: Pair, number: int) -> Iterator[tuple[Path, Any]]:
        """Yield where a result holds a value, or a word or number of a text."""
        value = pair.value
        words = _BETWEEN.split(value) if isinstance(value, str) else ()
        codes = {one.strip(".-") for one in words if any(map(str.isdigit, one))}
        for path, leaf in leaves(self._results[number]):
            text = str(leaf)
            is_part = text in codes or (len(text) > 2 and isinstance(value, str) and text in value)
            if is_plain(leaf) or not (same(leaf, value) or is_part):
                continue
            if text in codes or same(leaf, value) or mentioned_in(text, value, exactly=True):
                yield path, leaf

    # ---- params

    def input_schema(self) -> Json:
        """Return what inputs must be: those of which nobody knows what another value would do."""
        had = {name: self._had(name) for name in self._names.values()}
        pinned = {
            name: {"enum": had[name]}
            for name in had
            if len(had[name]) < ENOUGH_VALUES and self._is_pinned(name)
        }
        is_mixed = any(len(had[name]) > 1 for name in pinned)
        reads = [number for number in range(len(self._calls)) if self._asks(number)]
        if is_mixed and any(map(self._differed, reads)):
            raise NotRecordable("what was read and pinned params both differed")
        looks = {name: one for name, one in self._lesson.looks.items() if name in had}
        properties: Json = {name: {} for name in self._task.inputs} | looks | pinned
        is_any = not pinned and not looks
        return {} if is_any else {"input_schema": {"type": "object", "properties": properties}}

    def _had(self, name: str) -> list[Any]:
        found: list[Any] = []
        for one in self._recordings:
            if not any(identical(one.inputs.get(name), known) for known in found):
                found.append(one.inputs.get(name))
        return found

    def _is_pinned(self, name: str) -> bool:
        """Return whether nobody knows what another value of a param would do."""
        unchecked = [n for n, c in enumerate(self._calls) if c.writes and c.pre is None]
        if any(information(pair.value) >= SMALL for n in unchecked for pair in self._open[n]):
            return True  # another value may lead to another choice
        value = self._task.inputs[name]
        # An input of equal value is the param too, so following any of them is enough.
        alike = {name}
        if not is_plain(value):
            alike |= {one for one, its in self._task.inputs.items() if identical(its, value)}
        every = [pair for pairs in self._pairs for pair in pairs]
        uses = [pair for pair in every if followed(pair.template, [*alike])]
        own = [pair for pair in uses if pair.key in alike and _is_whole(pair.template)]
        if is_plain(value):
            return not own or own != uses  # yes and no stand everywhere
        if _is_number(value) and len(self._had(name)) == 1:
            # 30 may be 10 times 3, and what has its place is not meant in `in 3 days`.
            known = [leaf for _, leaf in leaves(self._task.inputs)]
            numbers = [pair.template for pair in every if _is_number(pair.template)]
            is_in_text = bool(own) and not all(_is_whole(pair.template) for pair in uses)
            return is_in_text or not uses or any(one not in known for one in numbers)
        return not uses


def _path(parts: Sequence[str | int]) -> str:
    return "".join(f".{part}" for part in parts)


def _is_whole(template: Any) -> bool:
    return isinstance(template, str) and whole_expression(template) is not None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
