"""Composition of a behaviour from a run of an agent, alone or with earlier runs of the same calls.

`learning` makes the routine. This module adds what stands beside it: captures, what must return as
recorded, and which params must be recorded ones, since their use can't be followed.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from em.behaviour.agent_run import Call, Run, refuse_unfinished, refuse_unknown_effects
from em.behaviour.behaviour import FORMAT, Answer, Behaviour, Capture, Captures
from em.behaviour.codec import NotEncodable, encode
from em.behaviour.learning import Lesson, Pair, is_made, pairs_of
from em.behaviour.likeness import is_fact
from em.behaviour.task import (
    HOLE,
    Params,
    Task,
    constant_texts,
    followed,
    is_plain,
    param_names,
    used_by,
)
from em.compiler.draft import Recorded
from em.compiler.evidence import information
from em.compiler.example import Call as RecordedCall
from em.errors import NotRecordable
from em.runner.expressions.language import names_in, whole_expression
from em.values.canonical import Json, identical, same
from em.values.leaves import is_informative, leaves, mentioned_in, texts

MOST_RECORDINGS = 16
"""Recordings of one behaviour that are learnt from; the oldest are left out."""
MOST_BYTES = 1_000_000
"""The size of all recordings that are kept with a behaviour, as JSON; the newest is kept anyway."""
MOST_TRIED = 4
"""Behaviours that a recording is learnt from together with, the newest."""
ENOUGH_VALUES = 3
"""Values of a param with which the same was done: then it does not matter."""
ENOUGH = 10.0
"""Bits of a value that two places don't hold by chance."""
SMALL = 3.5
"""Values below this many bits (true, 1, 10) stand everywhere, so they say next to nothing."""
_CHOICE = re.compile(r"\b(?:only|only_key)\([^()]*,|\b(?:smallest|largest|where)\(")


class Composition:
    """The behaviour of a run that succeeded, alone or together with earlier recordings of it."""

    def __init__(
        self, name: str, run: Run, task: Task, value: Any, hint: Any, seconds: float
    ) -> None:
        """Take the run of an engine; raise NotRecordable if it can't be stored."""
        if run.problem is not None:
            raise run.problem
        refuse_unfinished(run)
        refuse_unknown_effects(run.calls)
        self._calls = [call for call in run.calls if call.ended]
        if not self._calls:
            raise NotRecordable(
                "the agent called no tool",
                fix="a behaviour is made of calls of decorated tools",
            )
        self._run, self._task, self._seconds, self._name = run, task, seconds, name
        steps = {id(call): number for number, call in enumerate(self._calls)}
        step_of = {n: steps[id(c)] for n, c in enumerate(run.calls) if id(c) in steps}
        self._live = [
            {name: step_of[source] for name, source in call.live.items()} for call in self._calls
        ]
        output, self._form, self._live_answer = self._encoded(value, hint)
        calls = [
            RecordedCall(c.tool.name, c.args, c.result, effect="write" if c.tool.writes else "read")
            for c in self._calls
        ]
        self._recording = Recorded(inputs=task.inputs, calls=calls, output=output)
        self.behaviour = self._composed([self._recording])

    def together(self, known: Sequence[Behaviour]) -> tuple[Behaviour, list[int]]:
        """Return the behaviour that this run and known ones show, with the numbers of those.

        Recordings that contradict each other stay behaviours of their own.
        """
        own = self.behaviour
        alike = [
            number
            for number, one in enumerate(known)
            if one.format == FORMAT and one.shape == own.shape and [*one.params] == [*own.params]
        ][-MOST_TRIED:]
        for chosen in (alike, *([one] for one in reversed(alike) if len(alike) > 1)):
            before = [recording for one in chosen for recording in known[one].recordings]
            with suppress(NotRecordable):
                if chosen:
                    several = [*before, self._recording][-MOST_RECORDINGS:]
                    return self._composed(several), chosen
        return own, []

    def _encoded(self, value: Any, hint: Any) -> tuple[Any, Any, int | None]:
        try:
            return *encode(value, hint), None
        except NotEncodable as problem:
            for number in range(len(self._calls) - 1, -1, -1):
                if self._calls[number].value is value:
                    return None, "", number
            raise NotRecordable(
                f"the agent's return value can't be stored: {problem}",
                place="the agent's return value",
                fix="annotate the agent's return type, or return plain values",
            ) from None

    def _composed(self, recordings: Sequence[Recorded]) -> Behaviour:
        lesson = Lesson(self._name, recordings, self._calls, self._live, self._live_answer)
        found = _Beside(self._task, self._calls, lesson)
        found.refuse_hidden()
        params = Params(self._task.params, param_names(self._task.params))
        ids = lesson.ids
        captures = {
            ids[number]: msgspec.structs.replace(
                found.captures(number),
                code=call.tool.code,
                forms=call.forms,
                live={name: ids[source] for name, source in self._live[number].items()},
                pre=_filled(call.pre, params),
                post=_filled(call.post, params),
                seconds=call.seconds,
            )
            for number, call in enumerate(self._calls)
        }
        live = self._live_answer
        return Behaviour(
            task=self._task.template,
            tags=list(self._task.tags),
            params=list(self._task.params),
            routine=lesson.document | found.input_schema(),
            captures=captures,
            answer=Answer(form=self._form, live=None if live is None else ids[live]),
            recordings=_small_enough(recordings),
            seconds=self._seconds,
            tokens=self._run.tokens,
            cost_usd=self._run.cost_usd,
            format=FORMAT,
        )


def _small_enough(recordings: Sequence[Recorded]) -> list[Recorded]:
    """Return the newest recordings, as many as are kept with a behaviour."""
    found = [*recordings[-1:]]
    left = MOST_BYTES - sum(len(msgspec.json.encode(one)) for one in found)
    for one in reversed(recordings[:-1]):
        left -= len(msgspec.json.encode(one))
        if left < 0:
            break
        found.insert(0, one)
    return found


def _filled(capture: Capture | None, params: Params) -> Capture | None:
    """Fill params into a capture. Results are not wired, so that changes are noticed."""
    if capture is None:
        return None
    return msgspec.structs.replace(capture, value=params.fill(capture.value, cautious=True))


class _Beside:
    """What stands beside the calls of a routine, as far as the values of the recordings show it."""

    def __init__(self, task: Task, calls: Sequence[Call], lesson: Lesson) -> None:
        self._task, self._calls, self._lesson = task, calls, lesson
        self._recordings = lesson.recordings
        newest = lesson.recordings[-1]
        self._results = [call.result for call in newest.calls]
        self._args = [*(call.args for call in newest.calls), newest.output]
        templates = [*lesson.args[:-1], lesson.answer]
        self._pairs = [[*pairs_of(a, t)] for a, t in zip(self._args, templates, strict=True)]
        self._names = param_names(task.params)
        # What nothing explains, by call: constants, and values that the learner would ask for.
        self._open = [[*self._open_in(number)] for number in range(len(self._pairs))]

    def _open_in(self, number: int) -> Iterator[Any]:
        constants = (one.value for one in self._pairs[number] if not is_made(one.template))
        for value in (*constants, *self._lesson.asked.get(number, ())):
            if not self._is_stated(value):
                yield value

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
            for _, leaf in leaves(self._task.template)
        )

    def refuse_hidden(self) -> None:
        """Refuse an id without a source: it may come from an object that can't be inspected."""
        # An object that is passed on is a handle, such as a page; other objects were read.
        handles = {source for live in self._lesson.live for source in live.values()}
        for number, values in enumerate(self._open):
            earlier = [(n, call) for n, call in enumerate(self._calls[:number]) if call.opaque]
            is_read = any(n not in handles for n, _ in earlier)
            for value in values if earlier else ():
                is_text = isinstance(value, str) and is_informative(value)
                is_id = _is_number(value) and value not in (0, 1, -1)
                suspect = is_id or (is_text and (is_read or any(map(str.isdigit, value))))
                if suspect and not self._is_known_before(value, number):
                    name = earlier[0][1].tool.name
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
        return f"tool {self._calls[number].tool.name}" + (f", argument {name}" if name else "")

    # ---- what must return as recorded

    def captures(self, number: int) -> Captures:
        """Return what stands beside a call, without what belongs to its tool."""
        call = self._calls[number]
        is_watched = not call.opaque and (
            self._lesson.is_watched(number) if not call.tool.writes else call.post is None
        )
        return Captures(
            asks=self._asks(number),
            watched=is_watched,
            free=sorted(self._free(number)) if is_watched else (),
            chosen=is_watched and self._is_chosen(number),
        )

    def _asks(self, number: int) -> bool:
        """Return whether a call may have been made to know something.

        Not if its name says that it writes, or if it gave something else when it was made again.
        """
        call = self._calls[number]
        again = [c for c in self._calls if c.tool is call.tool and identical(c.args, call.args)]
        is_changing = any(not identical(one.result, call.result) for one in again)
        return not call.tool.writes or (call.tool.reads and not is_changing)

    def _free(self, number: int) -> set[str]:
        """Return the paths of a result that later values take."""
        own = self._lesson.names[number]
        pairs = [pair for pairs in self._pairs for pair in pairs]
        return {
            "".join(f".{part}" for part in parts)
            for pair in pairs
            for name, parts in used_by([pair.template])
            if name == own and self._is_sure(number, parts, pair)
        }

    def _is_sure(self, number: int, parts: Sequence[str | int], pair: "Pair") -> bool:
        """Return whether a value comes from there: it says much, or is called so, or varied.

        What a write made is passed on, and seldom looked at.
        """
        if self._calls[number].tool.writes or not _is_whole(pair.template):
            return True
        if parts[-1:] == (pair.key,):
            return True
        if not is_fact(pair.value) and information(pair.value) >= ENOUGH:
            return True
        found = []
        for one in self._recordings:
            part: Any = one.calls[number].result
            with suppress(LookupError, TypeError):
                for key in parts:
                    part = part[key]
                found.append(part)
        return any(not identical(one, found[0]) for one in found)

    def _is_chosen(self, number: int) -> bool:
        """Return whether a later value stands in a collection of this result, and nobody knows why.

        So does one that was chosen by what no input says.
        """
        name, known = self._lesson.names[number], {*self._task.inputs}
        for template in (p.template for pairs in self._pairs[number + 1 :] for p in pairs):
            for hole in (one for text in texts(template) for one in HOLE.findall(text)):
                if _CHOICE.search(hole):
                    used = names_in(hole.strip(), "", bare=True)
                    if name in used and not used & known:
                        return True
        inside = [
            leaf
            for path, leaf in leaves(self._results[number])
            if any(part.in_collection for part in path)
        ]
        later = [value for values in self._open[number + 1 :] for value in values]
        return any(
            value not in (0, 1, -1)
            and any(same(one, value) for one in inside)
            and not any(same(leaf, value) for _, leaf in leaves(self._args[: number + 1]))
            for value in later
        )

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
        if is_mixed and any(self._differed(number) for number in range(len(self._calls))):
            raise NotRecordable("what was read and pinned params both differed")
        properties: Json = {name: {} for name in self._task.inputs} | pinned
        return {"input_schema": {"type": "object", "properties": properties}} if pinned else {}

    def _differed(self, number: int) -> bool:
        results = [one.calls[number].result for one in self._recordings]
        return self._asks(number) and any(not identical(one, results[0]) for one in results)

    def _had(self, name: str) -> list[Any]:
        found: list[Any] = []
        for one in self._recordings:
            if not any(identical(one.inputs.get(name), known) for known in found):
                found.append(one.inputs.get(name))
        return found

    def _is_pinned(self, name: str) -> bool:
        unchecked = [n for n, c in enumerate(self._calls) if c.tool.writes and c.pre is None]
        if any(information(value) >= SMALL for n in unchecked for value in self._open[n]):
            return True  # another value may lead to another choice
        value = self._task.inputs[name]
        # An input of equal value is the param too, so following any of them is enough.
        alike = {name}
        if not is_plain(value):
            alike |= {one for one, its in self._task.inputs.items() if identical(its, value)}
        every = [pair for pairs in self._pairs for pair in pairs]
        uses = [pair for pair in every if followed(pair.template, [*alike])]
        own = [pair for pair in uses if pair.key in alike and _is_whole(pair.template)]
        open_values = [one for values in self._open for one in values]
        if any(same(one, value) for one in open_values) and not own and not is_plain(value):
            return True
        if not uses or (len(self._had(name)) == 1 and not self._follows(uses, own)):
            return True
        # "ERIK" in a template was made from the param "erik" by the agent; 30 may be 10 times 3.
        templates = [pair.template for pair in every]
        if isinstance(value, str):
            return any(_contains(text, value) for text in constant_texts(templates))
        return _is_number(value) and self._has_own_numbers(every)

    def _follows(self, uses: Sequence[Pair], own: Sequence[Pair]) -> bool:
        """Return whether a param is surely what these values come from.

        What has an argument of its own name is in no other short value, and yes or no in none.
        """
        return all(
            use in own
            or (is_informative(use.value) and not (own and self._is_short_in(use, own)))
            or not (own or is_plain(use.value))
            for use in uses
        )

    def _is_short_in(self, use: Pair, own: Sequence[Pair]) -> bool:
        """Return whether a text holds a number that has a place of its own, as in `in 3 days`."""
        return not _is_whole(use.template) and any(_is_number(one.value) for one in own)

    def _has_own_numbers(self, every: Sequence[Pair]) -> bool:
        """Return whether there are numbers that come from neither the task nor a result."""
        known = [leaf for _, leaf in leaves(self._task.inputs) if _is_number(leaf)]
        own = [pair.template for pair in every if _is_number(pair.template)]
        return any(value not in known for value in own)


def _is_whole(template: Any) -> bool:
    return isinstance(template, str) and whole_expression(template) is not None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _contains(text: str, value: str) -> bool:
    """Return whether a text contains a value, in upper or lower case."""
    if len(value) < 4:
        return len(value) == 3 and mentioned_in(value, text)
    return value.casefold() in text.casefold()
