"""Composition of a behaviour from its recordings: the learner explains the values of its calls.

Every call is a step, in the order in which it was made, and the answer is explained like the
argument of one more call. A behaviour has nobody to ask: what the learner can't explain stays as it
was recorded, what may have given it must give it again, and where it was a choice, the params must
be recorded ones. `requirements` adds what must hold of results.
"""

import ast
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, NamedTuple

import msgspec

from em.behaviour.agent_run import Call, Run, refuse_unfinished, refuse_unknown_effects
from em.behaviour.behaviour import FORMAT, Answer, Behaviour, Capture, Captures, result_hash
from em.behaviour.codec import NotEncodable, encode
from em.behaviour.document import Made, document, ids_of
from em.behaviour.likeness import hashes_of, is_one_of_few
from em.behaviour.requirements import Recordings, schema_of
from em.behaviour.task import (
    HOLE,
    Params,
    Task,
    constant_texts,
    escaped,
    followed,
    is_plain,
    literal_text,
    param_names,
    reference,
    used_by,
)
from em.behaviour.wiring import FAILURES, OUTPUT, Wired, learnt, scopes, verbatim
from em.compiler.draft import Recorded
from em.compiler.evidence import information
from em.compiler.example import Call as RecordedCall
from em.errors import NotRecordable
from em.runner.expressions.language import compile_expression, names_in, whole_expression
from em.values.canonical import Json, identical, same
from em.values.leaves import Path, is_informative, leaves, mentioned_in, texts
from em.values.syntax_tree import expression_of

MOST_RECORDINGS = 16
"""Recordings of one behaviour that are learnt from; the oldest are left out."""
MOST_BYTES = 1_000_000
"""The size of all recordings that are kept with a behaviour, as JSON."""
MOST_TRIED = 4
"""Behaviours that a recording is learnt from together with, the newest."""
ENOUGH = 10.0
"""Bits of a value that two places don't hold by chance."""
SMALL = 3.5
"""Values below this many bits (true, 1, 10) stand everywhere, so a match says next to nothing."""
_CODE = re.compile(r"(?<![\w.,-])[\w-]*\d[\w-]*(?:\.\d+)?(?![\w]|[.,]\d)")

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
        self._step_of = {n: steps[id(c)] for n, c in enumerate(run.calls) if id(c) in steps}
        output, self._form, self._live = self._encoded(value, hint)
        calls = [
            RecordedCall(c.tool.name, c.args, c.result, effect=_effect(c)) for c in self._calls
        ]
        self._recording = Recorded(inputs=task.inputs, calls=calls, output=output)
        self.behaviour = self._composed([self._recording])

    def together(self, known: Sequence[Behaviour]) -> tuple[Behaviour, list[int]]:
        """Return the behaviour that this run and known ones show, with the numbers of those.

        Recordings that contradict each other stay behaviours of their own.
        """
        same = [number for number, one in enumerate(known) if self._is_alike(one)][-MOST_TRIED:]
        if not same:
            return self.behaviour, []
        for chosen in (same, *([one] for one in reversed(same) if len(same) > 1)):
            before = [recording for one in chosen for recording in known[one].recordings]
            several = [*before, self._recording][-MOST_RECORDINGS:]
            with suppress(NotRecordable):
                made = self._composed(several, is_new=False)
                if not _are_mixed(made):
                    return made, chosen
        return self.behaviour, []

    def _is_alike(self, known: Behaviour) -> bool:
        """Return whether a behaviour makes the same calls, behind the same checks."""
        own = self.behaviour
        return (
            known.format == FORMAT
            and bool(known.recordings)
            and known.shape() == own.shape()
            and [*known.params] == [*own.params]
        )

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

    def _composed(self, recordings: Sequence[Recorded], *, is_new: bool = True) -> Behaviour:
        wired = learnt(recordings)
        if wired is None and not is_new:
            raise NotRecordable("the recordings contradict each other")
        live = [
            {name: self._step_of[source] for name, source in call.live.items()}
            for call in self._calls
        ]
        wired = wired or verbatim(recordings[-1])
        found = _Steps(self._task, self._calls, recordings, wired, live)
        self._refuse_hidden(found)
        params = Params(self._task.params, param_names(self._task.params))
        ids = found.ids
        captures = {
            ids[number]: msgspec.structs.replace(
                found.beside(number),
                code=call.tool.code,
                forms=call.forms,
                live={name: ids[source] for name, source in live[number].items()},
                pre=_filled(call.pre, params),
                post=_filled(call.post, params),
                seconds=call.seconds,
            )
            for number, call in enumerate(self._calls)
        }
        answer = Answer(
            form=self._form, live=None if self._live is None else ids[self._live], free=found.free
        )
        return Behaviour(
            task=self._task.template,
            tags=list(self._task.tags),
            params=list(self._task.params),
            pinned=found.pinned(),
            routine=found.routine(self._name, self._live),
            captures=captures,
            answer=answer,
            recordings=_small_enough(recordings),
            seconds=self._seconds,
            tokens=self._run.tokens,
            cost_usd=self._run.cost_usd,
            format=FORMAT,
        )

    def _refuse_hidden(self, found: "_Steps") -> None:
        """Refuse an id without a source: it may come from an object that can't be inspected."""
        # An object that is passed on is a handle, such as a page; other objects were read.
        handles = {self._step_of.get(n) for call in self._calls for n in call.live.values()}
        for open_value in found.open_values:
            earlier = [
                (number, call)
                for number, call in enumerate(self._calls[: open_value.call])
                if call.opaque
            ]
            value = open_value.value
            is_read = any(number not in handles for number, _ in earlier)
            suspect = _is_like_an_id(value) or (
                is_read and isinstance(value, str) and is_informative(value)
            )
            if earlier and suspect and not found.is_known_before(value, open_value.call):
                name = earlier[0][1].tool.name
                raise NotRecordable(
                    f"{value!r} may come from the result of {name}, which can't be inspected",
                    place=self._place_of(open_value),
                    fix=f"let {name} return a dataclass, a model or plain values",
                )

    def _place_of(self, one: "Open") -> str:
        if one.call == len(self._calls):
            return "the agent's return value"
        call = self._calls[one.call]
        found = (
            n for n, arg in call.args.items() if any(same(v, one.value) for _, v in leaves(arg))
        )
        name = next(found, "")
        return f"tool {call.tool.name}" + (f", argument {name}" if name else "")


def _are_mixed(made: Behaviour) -> bool:
    """Return whether what was read and pinned params both differed: not each goes with each."""
    is_read = any(len(row) > 1 for one in made.captures.values() for row in one.seen.values())
    return is_read and any(len(values) > 1 for values in made.pinned.values())


def _small_enough(recordings: Sequence[Recorded]) -> list[Recorded]:
    """Return the newest recordings, as many as are kept with a behaviour."""
    found: list[Recorded] = []
    left = MOST_BYTES
    for one in reversed(recordings):
        left -= len(msgspec.json.encode(one))
        if left < 0:
            break
        found.insert(0, one)
    return found


def _effect(call: Call) -> Any:
    return "write" if call.tool.writes else "read"


def _filled(capture: Capture | None, params: Params) -> Capture | None:
    """Fill params into a capture. Results are not wired, so that changes are noticed."""
    if capture is None:
        return None
    return msgspec.structs.replace(capture, value=params.fill(capture.value, cautious=True))


def _is_like_an_id(value: Any) -> bool:
    """Return whether a value looks like an id: a number, or a text with a digit."""
    if isinstance(value, str):
        return is_informative(value) and any(map(str.isdigit, value))
    return _is_number(value) and value not in (0, 1, -1)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


class Open(NamedTuple):
    """A value that nothing explains, or a constant part of a text, and its call."""

    call: int
    value: Any
    key: str = ""
    is_part: bool = False


class _Steps:
    """The steps of a behaviour, with what the learner leaves open."""

    def __init__(
        self,
        task: Task,
        calls: Sequence[Call],
        recordings: Sequence[Recorded],
        wired: Wired,
        live: Sequence[Mapping[str, int]],
    ) -> None:
        self._task, self._calls, self.wired, self._live = task, calls, wired, live
        self._recordings = recordings
        last = recordings[-1]
        self._args = [*(call.args for call in last.calls), {OUTPUT: last.output}]
        self._results = [call.result for call in last.calls]
        self._stated = {
            name: value for name, value in task.inputs.items() if not self._is_param(name)
        }
        self._templates = wired.args
        self._taken = used_by(self._templates)
        self.open_values = [*self._open()]
        self._chosen = {*self._choices()}
        self._is_choice = False
        self._asks = [self._is_asking(number) for number in range(len(calls))]
        own = [
            [*self._doubts(number), *self._short_ones(number), *_exactly(wired.args[number])]
            for number in range(len(calls) + 1)
        ]
        reads = [not call.tool.writes for call in calls]
        known = Recordings(recordings, wired.names, wired.args, self._asks, reads)
        later: list[list[str]] = [[] for _ in range(len(calls) + 1)]
        waiting: list[str] = []
        for number, call in enumerate(calls):
            if call.opaque:
                pass
            elif not call.tool.writes:
                waiting += known.relations(number)
            elif call.post is None:
                later[number + 1] += known.relations(number)
            if call.tool.writes and call.pre is None:
                later[number] += [*waiting, *known.limits(number)]
                waiting = []
        seen: set[str] = set()
        self.guards: list[list[str]] = [[] for _ in own]
        for number, found in enumerate(own):
            for guard in (*wired.guards[number], *found, *later[number]):
                if guard not in seen and self._holds(guard):
                    seen.add(guard)
                    self.guards[max(number, self._known_from(guard))].append(guard)

    def _is_param(self, name: str) -> bool:
        return name in param_names(self._task.params).values()

    def _known_from(self, guard: str) -> int:
        """Return the first call before which all is known that a guard names."""
        used = names_in(guard, "", bare=True)
        return max((n for n, name in enumerate(self.wired.names, 1) if name in used), default=0)

    def _holds(self, guard: str) -> bool:
        """Return whether a guard held in all recordings."""
        with suppress(*FAILURES):
            holds = compile_expression(guard, "")
            return all(holds(row) is True for row in self._rows)
        return False

    @cached_property
    def _rows(self) -> list[Json]:
        """All values of each recording."""
        return [[*scopes(self.wired, one)][-1][0] for one in self._recordings]

    @cached_property
    def _indexes(self) -> list[dict[str, list[tuple[Path, Any]]]]:
        """The values of each result as texts, with their places."""
        found: list[dict[str, list[tuple[Path, Any]]]] = [{} for _ in self._results]
        for index, result in zip(found, self._results, strict=True):
            for path, leaf in leaves(result):
                index.setdefault(str(leaf).casefold(), []).append((path, leaf))
        return found

    @cached_property
    def _every(self) -> Counter[str]:
        """How often each value stands in the task and in results."""
        both = (self._task.inputs, *self._results)
        return Counter(str(leaf) for one in both for _, leaf in leaves(one))

    def _is_asking(self, number: int) -> bool:
        """Return whether a call was made to know something.

        Not if its name says that it writes, or if it gave something else when it was made again.
        """
        call = self._calls[number]
        if not call.tool.writes:
            return True
        asked = call.tool, result_hash(call.args)
        answers = {
            result_hash(one.result)
            for one in self._calls
            if (one.tool, result_hash(one.args)) == asked
        }
        return call.tool.reads and len(answers) == 1

    @cached_property
    def ids(self) -> list[str]:
        """The ids of the steps that make the calls."""
        return ids_of([call.tool.name for call in self._calls])

    def routine(self, name: str, live: int | None) -> Json:
        """Return the routine. live: the call whose object the agent returned."""
        names, args = self.wired.names, self.wired.args
        calls = [
            Made(
                tool=call.tool.name,
                writes=call.tool.writes,
                args=args[number]
                | {own: f"{{{{ {names[source]} }}}}" for own, source in self._live[number].items()},
                save_as=names[number],
                guards=self.guards[number],
                expect=self._expected(number, is_again=True),
                note="; ".join(_notes(call)),
            )
            for number, call in enumerate(self._calls)
        ]
        answer = args[-1][OUTPUT] if live is None else f"{{{{ {names[live]} }}}}"
        return document(name, [*self._task.inputs], calls, answer, self.guards[-1])

    @cached_property
    def free(self) -> dict[str, list[str]] | None:
        """By the id of a call, what the answer takes of its result; None if it takes all there."""
        answer = self.wired.args[-1][OUTPUT]
        if answer is None or _is_whole(answer):
            return None
        found: dict[str, list[str]] = {}
        for name, parts in sorted(used_by(answer), key=str):
            if name in self.wired.names:
                step_id = self.ids[self.wired.names.index(name)]
                found.setdefault(step_id, []).append("".join(f".{part}" for part in parts))
        return found

    def _expected(self, number: int, *, is_again: bool) -> Json | None:
        """Return the schema of a result that something later relies on; None if nothing does.

        A check of the tool itself says what matters. So does that of a write after a read.
        is_again: of the same record, of which arguments take what is there now.
        """
        call = self._calls[number]
        reads, later = not call.tool.writes, [c for c in self._calls[number:] if c.tool.writes]
        is_acted_on = any(one.pre is None for one in later)
        if call.opaque or (not reads and call.post is not None):
            return None
        if reads and not is_acted_on and (later or self.free is None):
            return None
        rows, recorded = self._recordings, [one.calls[number] for one in self._recordings]
        known = [[c.result for c in row.calls[:number]] for row in rows]
        given = [[row.inputs, *(c.args for c in row.calls[: number + 1])] for row in rows]
        found = schema_of([one.result for one in recorded], given, known, is_asked=reads)
        if not reads or found is None:
            return found
        free = self._sure_paths(number) if is_again else set()
        if not is_acted_on and self.free is not None:
            free.update(self.free.get(self.ids[number], ()))
        return _without(found, free)

    def beside(self, number: int) -> Captures:
        """Return what stands beside a call, without what belongs to its tool."""
        call, asks = self._calls[number], self._asks[number]
        recorded = [one.calls[number] for one in self._recordings]
        seen = hashes_of([one.result for one in recorded]) if asks and not call.opaque else {}
        taken = self._sure_paths(number) if seen else set()
        return Captures(
            gave=result_hash(recorded[-1].result),
            asked=[*dict.fromkeys(result_hash(one.args) for one in recorded)] if asks else [],
            seen={path: [] if path in taken else traits for path, traits in seen.items()},
            chosen=number in self._chosen,
            other=self._expected(number, is_again=False)
            if taken and not call.tool.writes
            else None,
        )

    def _sure_paths(self, number: int) -> set[str]:
        """Return the paths that arguments surely take: their values stand nowhere else."""
        if self._calls[number].tool.writes:
            # What a write made is passed on, and seldom looked at.
            own = self.wired.names[number]
            return {
                "".join(f".{part}" for part in parts) for name, parts in self._taken if name == own
            }
        found = set()
        for name, parts in self._taken:
            if name != self.wired.names[number]:
                continue
            value = self._results[number]
            with suppress(LookupError, TypeError):
                for part in parts:
                    value = value[part]
                if isinstance(value, str) and is_informative(value) and self._every[value] == 1:
                    found.add("".join(f".{part}" for part in parts))
        return found

    # --- open values ------------------------------------------------------------------------------

    def _open(self) -> Iterator[Open]:
        for number, (args, templates) in enumerate(zip(self._args, self.wired.args, strict=True)):
            yield from (
                Open(number, value)
                for value in self.wired.asked[number]
                if not isinstance(value, dict | list)
            )
            for value, template, key in _pairs(args, templates):
                if isinstance(template, str) and "{{" in template and template != escaped(value):
                    yield from (
                        Open(number, text.strip(), "", True)
                        for text in constant_texts(template)
                        if _CODE.search(text)
                    )
                else:
                    yield Open(number, value, key)

    def _choices(self) -> Iterator[int]:
        """Yield the calls of which an item was chosen by what no input says."""
        known = param_names(self._task.inputs).values()
        for hole in (one for text in texts(self._templates) for one in HOLE.findall(text)):
            if _CHOICE.search(hole):
                used = names_in(hole.strip(), "", bare=True)
                names = () if used.intersection(known) else self.wired.names[: len(self._calls)]
                yield from (number for number, name in enumerate(names) if name in used)

    def _doubts(self, number: int) -> list[str]:
        """Return what must give again what nothing explains; note the choices."""
        found: list[str] = []
        for one in self.open_values:
            if one.call == number and not self._is_stated(one.value):
                found += self._doubt(one)
        return found

    def _short_ones(self, number: int) -> Iterator[str]:
        """Yield that a short value that a read gave under another name is the recorded one.

        It may have come from there by chance, as long as no other recording had another value.
        """
        for value, template, key in _pairs(self._args[number], self.wired.args[number]):
            found = used_by([template]) if _is_whole(template) else set()
            for name, parts in found:
                call = self.wired.names.index(name) if name in self.wired.names else None
                if (
                    call is None
                    or self._calls[call].tool.writes
                    or _had_others(self._recordings, call, parts, value)
                ):
                    continue
                is_told = bool(parts) and parts[-1] == key
                if not is_told and (is_one_of_few(value) or information(value) < ENOUGH):
                    yield f"{reference(name, parts)} == {literal_text(value)}"

    def _is_stated(self, value: Any) -> bool:
        """Return whether the task itself has a value, apart from its params."""
        if is_plain(value):
            return False
        if isinstance(value, str) and len(value.split()) > 1:
            return any(same(leaf, value) for _, leaf in leaves(self._stated))
        return any(
            same(leaf, value) or (isinstance(leaf, str) and mentioned_in(value, leaf))
            for _, leaf in leaves(self._task.template)
        )

    def _doubt(self, one: Open) -> Iterator[str]:
        number, value, key, is_part = one
        is_end = number == len(self._calls)
        is_checked = is_end or self._calls[number].pre is not None
        writes = not is_end and self._calls[number].tool.writes and not is_checked
        if not is_part and writes and not is_plain(value) and information(value) >= SMALL:
            self._is_choice = True
        # In `add(cart=1, quantity=1)` only the cart is the result of `open_cart`.
        taken = used_by([self.wired.args[number]])
        for call, path, leaf, is_it in self._holding(number, value, key):
            if any(part.in_collection for part in path):
                if value not in (0, 1, -1):
                    self._chosen.add(call)
                    self._is_choice = self._is_choice or not is_checked
                continue
            parts = tuple(part.key for part in path)
            if (self.wired.names[call], parts) not in taken or not is_it:
                yield f"{reference(self.wired.names[call], parts)} == {literal_text(leaf)}"

    def _holding(self, number: int, value: Any, key: str) -> Iterator[tuple[int, Path, Any, bool]]:
        """Yield where earlier results hold a value, or a part of a text, and whether all of it.

        What the agent used before is not from there, unless it is called like the argument or a
        write returned it.
        """
        from em.compiler.space import named_alike

        own = str(value).casefold()
        for call, index in enumerate(self._indexes[:number]):
            parts = (one for one in index if one in own and one != own)
            texts_in = [*parts] if isinstance(value, str) else []
            for path, leaf in (row for one in (own, *texts_in) for row in index.get(one, ())):
                is_it = str(leaf).casefold() == own
                is_part = not is_it and _stands_in(leaf, str(value))
                if not (is_it or is_part) or (path and is_plain(value)):
                    continue
                place: Any = tuple(part.key for part in path)
                is_named = bool(key and named_alike(place, key, self._calls[call].tool.name))
                is_new = self._calls[call].tool.writes and value not in (0, 1, -1)
                if is_named or is_new or not self._was_used_before(leaf, call):
                    yield call, path, leaf, is_it

    def _was_used_before(self, value: Any, call: int) -> bool:
        """Return whether the agent used a value before this result existed."""
        return any(same(leaf, value) for args in self._args[: call + 1] for _, leaf in leaves(args))

    def is_known_before(self, value: Any, number: int) -> bool:
        """Return whether the task, an earlier call or its result has a value."""
        known = [self._task.inputs, *self._args[:number], *self._results[:number]]
        return any(
            same(leaf, value) or (isinstance(leaf, str) and mentioned_in(value, leaf))
            for one in known
            for _, leaf in leaves(one)
        )

    # --- params -----------------------------------------------------------------------------------

    def pinned(self) -> dict[str, list[Any]]:
        """Return the params whose use can't be followed, with the values that they had."""
        names = param_names(self._task.params)
        return {
            name: self._had(names[name])
            for name in self._task.params
            if self._is_pinned(name, names)
        }

    def _had(self, name: str) -> list[Any]:
        found: list[Any] = []
        for one in self._recordings:
            if not any(identical(one.inputs.get(name), known) for known in found):
                found.append(one.inputs.get(name))
        return found

    def _is_pinned(self, name: str, names: Mapping[str, str]) -> bool:
        if self._is_choice:
            return True  # another value may lead to another choice
        value = self._task.params[name]
        # An input of equal value is the param too, so following any of them is enough.
        alike = {names[name]}
        if not is_plain(value):
            alike |= {one for one, its in self._task.inputs.items() if identical(its, value)}
        uses = [
            row
            for args, templates in zip(self._args, self.wired.args, strict=True)
            for row in _pairs(args, templates)
            if followed(row.template, [*alike])
        ]
        has_place = any(use.key in alike and _is_whole(use.template) for use in uses)
        is_open = any(same(one.value, value) for one in self.open_values)
        if is_open and not has_place and not is_plain(value):
            return True
        if not uses or (len(self._had(names[name])) == 1 and not self._follows(uses, alike)):
            return True
        # "ERIK" in a template was made from the param "erik" by the agent; 30 may be 10 times 3.
        bent = isinstance(value, str) and any(
            _contains(text, value) for text in constant_texts(self.wired.args)
        )
        return bent or (_is_number(value) and self._has_own_numbers())

    def _follows(self, uses: Sequence["_Pair"], alike: set[str]) -> bool:
        """Return whether a param is surely what these values come from.

        What has an argument of its own name is in no other short value, and yes or no in none.
        """
        has_place = any(use.key in alike and _is_whole(use.template) for use in uses)
        return all(
            (use.key in alike and _is_whole(use.template))
            or (
                is_informative(use.value)
                and not (
                    has_place and _is_short_in(use.template, use.value, self._task.inputs, alike)
                )
            )
            or not (has_place or is_plain(use.value))
            for use in uses
        )

    def _has_own_numbers(self) -> bool:
        """Return whether a template has numbers that come from neither the task nor a result."""
        known = {leaf for _, leaf in leaves(self._task.inputs) if _is_number(leaf)}
        own = [leaf for _, leaf in leaves([self._templates, self.wired.asked])]
        return any(_is_number(leaf) and leaf not in known for leaf in own)


def _notes(call: Call) -> Iterator[str]:
    """Yield what stands beside a call and is no part of the routine."""
    for name, capture in (("pre-check", call.pre), ("post-check", call.post)):
        if capture is not None:
            yield f"the {name} of this call is not part of the routine"
    for name in call.forms:
        yield f"args.{name}: the tool was given a type that JSON does not express"


def _without(schema: Json, paths: Collection[str]) -> Json | None:
    """Return a schema that says nothing of some paths but that they are there."""
    if "" in paths:
        return None
    for path in paths:
        parent: Any = schema
        *above, last = path[1:].split(".")
        for part in above:
            parent = parent.get("properties", {}).get(part, {})
        parent.get("properties", {}).pop(last, None)
    return schema


def _exactly(templates: Any) -> Iterator[str]:
    """Yield that what `only` found has just this value: it ignores case, and the agent may not."""
    for hole in (hole for text in texts(templates) for hole in HOLE.findall(text)):
        for node in ast.walk(expression_of(hole.strip())) if "only(" in hole else ():
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "only":
                for given in node.keywords:
                    yield f"{ast.unparse(node)}.{given.arg} == {ast.unparse(given.value)}"


def _had_others(
    recordings: Sequence[Recorded], call: int, parts: Sequence[str | int], value: Any
) -> bool:
    """Return whether a part of a result was something else in another recording."""
    for one in recordings:
        part: Any = one.calls[call].result
        with suppress(LookupError, TypeError):
            for key in parts:
                part = part[key]
            if not same(part, value):
                return True
    return False


class _Pair(NamedTuple):
    """A recorded part of an argument with its template, and the name that it has."""

    value: Any
    template: Any
    key: str


def _pairs(value: Any, template: Any, key: str = "") -> Iterator[_Pair]:
    """Yield the recorded parts of a structure with their templates."""
    if isinstance(value, dict) and isinstance(template, dict) and value.keys() == template.keys():
        for name, one in value.items():
            yield from _pairs(one, template[name], str(name))
    elif isinstance(value, list) and isinstance(template, list) and len(value) == len(template):
        for one, its in zip(value, template, strict=True):
            yield from _pairs(one, its, key)
    else:
        yield _Pair(value, template, key)


def _is_whole(template: Any) -> bool:
    return isinstance(template, str) and whole_expression(template) is not None


def _is_short_in(template: Any, value: Any, inputs: Json, alike: set[str]) -> bool:
    """Return whether a text holds a number of the task, as in `in 3 days`."""
    return (
        not _is_whole(template)
        and isinstance(value, str)
        and any(_is_number(inputs[n]) for n in alike)
    )


def _stands_in(leaf: Any, text: str) -> bool:
    """Return whether a text holds a value of a result: a code, or a word of some length."""
    if leaf is None or isinstance(leaf, bool) or leaf == "":
        return False
    own = str(leaf)
    if any(map(str.isdigit, own)) and own in _CODE.findall(text):
        return True
    return len(own) > 2 and mentioned_in(own, text, exactly=True)


def _contains(text: str, value: str) -> bool:
    """Return whether a text contains a value, in upper or lower case."""
    if len(value) < 4:
        return len(value) == 3 and mentioned_in(value, text)
    return value.casefold() in text.casefold()
