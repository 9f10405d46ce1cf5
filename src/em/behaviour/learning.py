"""Learning: recordings of a behaviour become a routine that makes every call again, in its order.

The compiler's learner explains the values, and says what must hold. It leaves out reads that
nothing uses; their arguments are learnt as if every call had an effect. What it would ask a person
for stays as it was recorded: a behaviour has nobody to ask.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import permutations
from typing import TYPE_CHECKING, Any, NamedTuple

from em.behaviour.behaviour import Behaviour, Step, Taught
from em.behaviour.course import Course
from em.behaviour.task import (
    HOLE,
    as_expression,
    escaped,
    followed,
    literal_text,
    reference,
)
from em.compiler.calls import Names, identifier
from em.compiler.draft import Recorded
from em.compiler.evidence import BY_PERSON, CONSTANTS_SHOWN, Caution, information, is_small
from em.compiler.example import Call as RecordedCall
from em.compiler.example import Example
from em.compiler.memberships import mentions
from em.compiler.places import are_comparable
from em.compiler.relations import stands_in, windows
from em.compiler.situation import Known, Said, Situation, read_off
from em.compiler.steps import read_name
from em.errors import EmError, ExpressionError, NotRecordable
from em.runner.expressions.language import names_in, parse_reference, whole_expression
from em.values.canonical import Json, identical, same
from em.values.leaves import leaves
from em.values.times import is_date

if TYPE_CHECKING:
    from em.compiler.learner import Learnt

ANSWER, OUTPUT = "answer", "output"
"""The last call that the learner sees, and its argument: what the agent returned."""
MOST_VALUES = 100_000
"""Values of results; with more of them nothing is explained."""
MOST_REFUTED = 50
"""Checks that recordings may refute; then something else is wrong."""
FAILURES = (EmError, ExpressionError, ValueError, TypeError, LookupError)
_READ = ("let", "assert", "tool.call", "return")
_QUOTED = re.compile(r'\bquoted\(([\w.]+), "(\w+)"\)')
_TEXT = r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'"


class Explained(NamedTuple):
    """What the learner says, by the number of the call.

    others: the steps that name a value or check one. asked: values that it would ask for.
    inputs: what inputs must look like, by their names.
    """

    args: dict[int, Json]
    expect: dict[int, Json]
    others: list[Json]
    asked: dict[int, list[Any]]
    inputs: dict[str, Json]

    def beside(self, more: "Explained | None") -> "Explained":
        """Return the same with what another explanation says must hold."""
        if more is None:
            return self
        return self._replace(
            expect=_both(more.expect, self.expect),
            others=[*self.others, *more.others],
            inputs=_both(more.inputs, self.inputs),
        )


def _both(one: Mapping[Any, Json], other: Mapping[Any, Json]) -> dict[Any, Json]:
    """Return the schemas that ask for what the other ones and, beside them, these ask for."""
    shared = {key: {**other[key], "allOf": [one[key]]} for key in one.keys() & other.keys()}
    return {**one, **other, **shared}


class Pair(NamedTuple):
    """A recorded part of an argument with its template, and the name that it has."""

    value: Any
    template: Any
    key: str


class Lesson:
    """The routine that some recordings of the same calls teach.

    names: what each result is saved as. args: the templates of each call, the answer being the
    last. asked: by call, values that nothing explains. looks: by name, the schemas of inputs.
    """

    def __init__(self, name: str, behaviours: Sequence[Behaviour]) -> None:
        self.recordings = [one.recorded for one in behaviours]
        self._calls = behaviours[-1].steps
        self._live_answer = behaviours[-1].answer.live
        newest = self.recordings[-1]
        self._made = [*newest.calls, RecordedCall(ANSWER, {OUTPUT: newest.output})]
        self.names, self.ids = self._all_names()
        self.args: list[Json] = []
        self.asked: dict[int, list[Any]] = {}
        for explained in self._explanations():
            self.asked, self.looks = explained.asked, explained.inputs
            self.args = [
                self._whole_answer(explained.args[n])
                if n == len(self._calls)
                else explained.args[n]
                for n in range(len(self._made))
            ]
            document = self._proved(self._document(name, explained))
            if document is not None:
                self.document = document
                return
        raise NotRecordable("the recordings contradict each other")

    def _all_names(self) -> tuple[list[str], list[str]]:
        names, ids = Names(), Names()
        for name in self.recordings[-1].inputs:
            names.free(name)
        saved = []
        for call in self._made:
            title = call.tool.rpartition(".")[2]
            wanted = f"{title}_result" if call.effect == "write" else read_name(title)
            saved.append(names.free(identifier(wanted)))
        self._taken = names
        return saved, [ids.free(identifier(call.tool)) for call in self._calls]

    # ---- what the learner says

    def _explanations(self) -> Iterator[Explained]:
        """Yield what may explain the recordings, the best first."""
        values = sum(1 for one in self.recordings for c in one.calls for _ in leaves(c.result))
        if values <= MOST_VALUES:
            several = len(self.recordings) > 1
            reads = any(call.effect == "read" for call in self._made[:-1])
            shown = self._learnt(CONSTANTS_SHOWN, every_call=False) if several else None
            for caution in (BY_PERSON, CONSTANTS_SHOWN) if several else (BY_PERSON,):
                found = self._learnt(caution, every_call=False)
                plain = self._learnt(caution, every_call=True) if reads else found
                if found is not None and plain is not None:
                    both = found.beside(shown)
                    yield both._replace(
                        args={**plain.args, **found.args}, asked={**plain.asked, **found.asked}
                    )
        args = {number: escaped(call.args) for number, call in enumerate(self._made)}
        yield Explained(args, {}, [], {}, {})

    def _learnt(self, caution: Caution, *, every_call: bool) -> Explained | None:
        """Return what the learner says; None if a behaviour can't do that.

        every_call: explain all calls; else what must hold, and those with an effect.
        """
        with suppress(*FAILURES, RecursionError):
            found, more = self._asked_of(caution, {}, every_call=every_call), dict[str, Any]()
            asked = [ones[-1] for ones in found.values.values()]
            for number, one in enumerate(asked):
                # What it would ask for may be a part of other values.
                if (
                    not isinstance(one, dict | list)
                    and not is_small(one)
                    and any(
                        isinstance(text, str) and str(one) in text and text != one for text in asked
                    )
                ):
                    more[f"asked_{number}"] = one
            if more:
                found = self._asked_of(caution, more, every_call=every_call)
            values = {**found.values, **{name: [one] for name, one in more.items()}}
            made = self._read(found.routine["steps"], values, inline=every_call)
            return made and made._replace(inputs=self._looks(found.routine["input_schema"]))
        return None

    def _looks(self, schema: Json) -> dict[str, Json]:
        """Return what inputs must look like; nothing of those that nothing uses."""
        known = schema["properties"].items()
        own = self.recordings[-1].inputs
        return {name: one for name, one in known if name in own and one.keys() != {"const"}}

    def _asked_of(self, caution: Caution, more: Json, *, every_call: bool) -> "Learnt":
        from em.compiler.learner import learn  # it is large, and a replay does not need it

        examples = [self._example(one, more, every_call=every_call) for one in self.recordings]
        return learn("behaviour", examples, caution=caution)

    def _example(self, recording: Recorded, more: Json, *, every_call: bool) -> Example:
        calls = []
        for number, call in enumerate(recording.calls):
            effect: Any = "write" if every_call else call.effect
            calls.append(call._replace(tool=self._title(number), effect=effect))
        answer = RecordedCall(ANSWER, {OUTPUT: recording.output}, effect="write")
        return Example({**recording.inputs, **more}, [*calls, answer]).flat()

    def _title(self, number: int) -> str:
        """Return the name that a call has for the learner: each is of a tool of its own."""
        return f"{self._made[number].tool.rpartition('.')[2]}_{number}"

    def _read(
        self, steps: Sequence[Json], values: Mapping[str, Sequence[Any]], *, inline: bool
    ) -> Explained | None:
        """Return the steps of a routine by the call that they belong to.

        inline: write what a `let` names where it is used.
        """
        if any(not same(one, ones[-1]) for ones in values.values() for one in ones):
            return None
        if any("when" in s or s["type"] not in _READ for s in steps):
            return None
        asked = {name: ones[-1] for name, ones in values.items()}
        titles = {self._title(n): n for n in range(len(self._calls))} | {ANSWER: len(self._calls)}
        named = {name: literal_text(value) for name, value in asked.items()}
        for step in steps:
            if step["type"] == "tool.call":
                named[step["save_as"]] = self.names[titles[step["tool"]]]
        made = Explained({}, {}, [], {}, {})
        for step in steps:
            if step["type"] == "let" and inline:
                named[step["save_as"]] = f"({as_expression(_renamed(step['value'], named))})"
            elif step["type"] == "let":
                name, value = self._taken.free(step["save_as"]), _renamed(step["value"], named)
                named[step["save_as"]] = name
                look = {"expect": step["expect"]} if "expect" in step else {}
                made.others.append({"type": "let", "value": value, "save_as": name, **look})
            elif step["type"] == "assert":
                made.others.append({"type": "assert", "check": _renamed_in(step["check"], named)})
            elif step["type"] == "tool.call":
                self._take(made, titles[step["tool"]], step, asked, named)
        return made

    def _take(
        self, made: Explained, number: int, step: Json, asked: Json, named: Mapping[str, str]
    ) -> None:
        """Note the arguments of a call, what it asks for, and what it must return."""
        made.args[number] = _renamed(_as_recorded(step["args"], asked), named)
        made.asked[number] = [asked[one] for one in sorted(followed(step["args"], [*asked]))]
        if "expect" in step:
            made.expect[number] = step["expect"]

    def _whole_answer(self, args: Json) -> Json:
        """Return the answer as a whole result, the newest, if it is one and no input."""
        last = self.recordings[-1]
        if last.output is None or any(identical(one, last.output) for one in last.inputs.values()):
            return args
        for number in range(len(self._calls) - 1, -1, -1):
            if all(identical(one.calls[number].result, one.output) for one in self.recordings):
                return {OUTPUT: f"{{{{ {self.names[number]} }}}}"}
        return args

    # ---- the routine

    @property
    def answer(self) -> Any:
        """What the routine returns, as a template."""
        if self._live_answer is not None:
            return f"{{{{ {self.names[self._live_answer]} }}}}"
        return self.args[-1][OUTPUT]

    def is_watched(self, number: int) -> bool:
        """Return whether something that no check looks at is done or said after a call.

        Then what it returned must be as recorded.
        """
        later = [call for call in self._calls[number + 1 :] if call.writes]
        if later:
            return any(call.pre is None for call in later)
        return self.answer is not None and whole_expression(str(self.answer)) is None

    def _document(self, name: str, explained: Explained) -> Json:
        effects = {c.tool: "write" if c.writes else "read" for c in self._calls}
        return {
            "version": "1",
            "name": identifier(name),
            "checks": "hand_over",
            "tools": [{"name": tool, "effect": effect} for tool, effect in effects.items()],
            "steps": [*self._steps(explained)],
        }

    def _steps(self, explained: Explained) -> Iterator[Json]:
        """Yield the calls in their order; each check and name as soon as its values are known."""
        others = [*explained.others, *self._writings()]
        unknown = {*self.names, *(one["save_as"] for one in others if "save_as" in one)}
        ids, told = Names(), list[Json]()
        for one in (*self.ids, "return"):
            ids.free(one)
        for number in range(len(self._calls) + 1):
            for step in [*others]:
                text = step.get("check") or as_expression(step["value"])
                if names_in(text, "", bare=True) & unknown:
                    continue
                others.remove(step)
                unknown.discard(step.get("save_as", ""))
                title = self.ids[number] if number < len(self._calls) else "return"
                if step["type"] == "let" or self.is_watched(number - 1):
                    yield {"id": ids.free(f"{step.get('save_as', title)}_check"), **step}
            if number < len(self._calls):
                yield self._call(number, explained)
                unknown.discard(self.names[number])
                others = [*self._echoes(number), *others]
                if number + 1 < len(self._calls):
                    made = [*self._limits(number + 1), *self._relations(number + 1)]
                    others += [one for one in made if one not in told]
                    told += made
        yield {"id": "return", "type": "return", "value": self.answer}

    def _call(self, number: int, explained: Explained) -> Json:
        call, own = self._calls[number], self.names
        live = {name: f"{{{{ {own[source]} }}}}" for name, source in call.live.items()}
        made: Json = {"id": self.ids[number], "type": "tool.call", "tool": call.tool}
        made |= {"args": {**self.args[number], **live}, "save_as": own[number]}
        is_seen = not call.opaque and call.post is None
        if number in explained.expect and is_seen and (call.writes or self.is_watched(number)):
            made["expect"] = explained.expect[number]
        notes = [
            f"the {what} of this call is not part of the routine"
            for what, capture in (("pre-check", call.pre), ("post-check", call.post))
            if capture is not None
        ]
        return made | ({"description": "; ".join(notes)} if notes else {})

    def _writings(self) -> Iterator[Json]:
        """Yield that a value needs no quotes where nothing says that the agent would set them.

        A recording in which it had them refutes that.
        """
        for found in dict.fromkeys(_QUOTED.findall(as_expression(self.args))):
            value, form = found
            yield {"type": "assert", "check": f'quoted({value}, "{form}") == {value}'}

    def _echoes(self, number: int) -> Iterator[Json]:
        """Yield that a write returns again what it was given, as it did."""
        call = self._calls[number]
        if not call.writes or call.post is not None or call.opaque:
            return
        args = self.recordings[-1].calls[number].args
        for path, value in leaves(self.recordings[-1].calls[number].result):
            given = [name for name, one in args.items() if same(one, value)]
            if any(part.in_collection for part in path) or information(value) < 5 or not given:
                continue
            place = reference(self.names[number], tuple(part.key for part in path))
            check = f"{place} == {as_expression(self.args[number][given[0]])}"
            yield {"type": "assert", "check": check}

    def _limits(self, number: int) -> Iterator[Json]:
        """Yield on which side of the numbers and dates that were read those are that a write takes.

        A number that a read was made with is an id.
        """
        call = self._calls[number]
        if not call.writes or call.pre is not None:
            return
        before = self.recordings[-1].calls[:number]
        asked = [leaf for one in before for _, leaf in leaves(one.args)]
        for name, own in self.recordings[-1].calls[number].args.items():
            text = as_expression(self.args[number][name])
            if any(same(own, one) for one in asked):
                continue
            for source, one in enumerate(before):
                made, is_constant = self._calls[source], not is_made(self.args[number][name])
                if not made.reads or (made.writes and (is_constant or self.names[source] in text)):
                    continue  # what a write made is compared with what was read
                for path, value in leaves(one.result):
                    place = reference(self.names[source], tuple(part.key for part in path))
                    is_apart = place not in text and not any(part.in_collection for part in path)
                    if is_apart and are_comparable(own, value) and own != value:
                        sign = ">=" if value > own else "<="
                        yield {"type": "assert", "check": f"{place} {sign} {text}"}

    def _relations(self, number: int) -> Iterator[Json]:
        """Yield how what was given or read before a write always was related.

        That may be why the write was made: the order of dates, the time between them, and what
        stood in a text. An order that follows from two others is left out.
        """
        if not self._calls[number].writes or self._calls[number].pre is not None:
            return
        known = [self._situation(recording, number) for recording in self.recordings]
        rows = [{one.text: one.value for one in own} for own in read_off(known)]
        dates = [text for text, value in rows[-1].items() if is_date(value)]
        kept = {
            (one, other)
            for one, other in permutations(dates, 2)
            if all(is_date(row.get(one)) and is_date(row.get(other)) for row in rows)
            and all(row[one] <= row[other] for row in rows)
            and any(row[one] != row[other] for row in rows)
        }
        for one, other in sorted(kept):
            if not any((one, via) in kept and (via, other) in kept for via in dates):
                yield {"type": "assert", "check": f"{one} <= {other}"}
        given = as_expression(self.args)
        spans = windows(known, lambda text: stands_in(text, given), {one for one, _ in kept})
        for text, _ in (*spans, *mentions(known, unproved=len(known) == 1)):
            yield {"type": "assert", "check": text}

    def _situation(self, recording: Recorded, number: int) -> Situation:
        """Return what a recording had been given and had read before a call."""
        calls = [*zip(self._calls[:number], self.names, recording.calls, strict=False)]
        return Situation(
            {name: Said(name, one) for name, one in recording.inputs.items()},
            [
                Known(name, one.result, {}, "", is_context=not one.args)
                for call, name, one in calls
                if call.reads
            ],
            frozenset(),
        )

    def _proved(self, document: Json) -> Json | None:
        """Return a routine without the checks that a recording refutes.

        None if it does not do what was recorded.
        """
        for _ in range(MOST_REFUTED):
            taught, refuted = Taught(routine=document, beside=()), ""
            for recording in self.recordings:
                course = retraced(taught, recording, self._calls)
                if course is None:
                    return None
                if not course.is_over:
                    refuted = course.why_stopped()[0] if course.is_stopped else ""
                    break
                if self._live_answer is None and not identical(course.output, recording.output):
                    return None
            else:
                return document
            kept = [_without_check(step, refuted) for step in document["steps"]]
            steps = [step for step in kept if step is not None]
            if steps == document["steps"]:
                return None
            document = {**document, "steps": steps}
        return None


def retraced(taught: Taught, recording: Recorded, calls: Sequence[Step]) -> Course | None:
    """Return the course of a routine through a recording; None if it makes another call."""
    course = Course(taught, recording.inputs)
    for made, call in zip(calls, recording.calls, strict=True):
        if course.is_stopped:
            break
        args = {name: one for name, one in course.args.items() if name not in made.live}
        if not identical(args, call.args):
            return None
        course.answer(call.result)
    return course


def _without_check(step: Json, refuted: str) -> Json | None:
    """Return a step without what a recording refutes; None for an assert."""
    if step["id"] != refuted:
        return step
    return None if step["type"] == "assert" else {k: v for k, v in step.items() if k != "expect"}


def _as_recorded(template: Any, asked: Json) -> Any:
    """Return a template in which whole values that would be asked for stand as they were."""
    if isinstance(template, dict):
        return {key: _as_recorded(one, asked) for key, one in template.items()}
    if isinstance(template, list):
        return [_as_recorded(one, asked) for one in template]
    name = (whole_expression(template) or "").strip() if isinstance(template, str) else ""
    return escaped(asked[name]) if name in asked else template


def _renamed(template: Any, named: Mapping[str, str]) -> Any:
    """Return a template in which names stand for others, or for expressions."""
    if isinstance(template, dict):
        return {key: _renamed(one, named) for key, one in template.items()}
    if isinstance(template, list):
        return [_renamed(one, named) for one in template]
    if not isinstance(template, str) or not named:
        return template
    return HOLE.sub(lambda hole: f"{{{{{_renamed_in(hole[1], named)}}}}}", template)


def _renamed_in(expression: str, named: Mapping[str, str]) -> str:
    if not named:
        return expression
    options = "|".join(map(re.escape, sorted(named, key=len, reverse=True)))
    pattern = rf"{_TEXT}|(?<![\w.])({options})(?!\w|\s*=[^=])"
    return re.sub(pattern, lambda one: named.get(one[1], one[0]), expression)


def pairs_of(value: Any, template: Any, key: str = "") -> Iterator[Pair]:
    """Yield the recorded parts of a structure with their templates."""
    if isinstance(value, dict) and isinstance(template, dict) and value.keys() == template.keys():
        for name, one in value.items():
            yield from pairs_of(one, template[name], str(name))
    elif isinstance(value, list) and isinstance(template, list) and len(value) == len(template):
        for one, its in zip(value, template, strict=True):
            yield from pairs_of(one, its, key)
    else:
        yield Pair(value, template, key)


def is_made(template: Any) -> bool:
    """Return whether a template holds an expression that is more than a quoted text."""
    with suppress(ExpressionError):  # braces of a constant
        return any(
            parse_reference(hole) or names_in(hole.strip(), "", bare=True)
            for hole in HOLE.findall(str(template))
        )
    return False
