"""Composition of a behaviour from a run: each value is wired to its source.

The compiler's wiring does most of it. Two things are added here, because a behaviour acts without
a person reading it first. Short values (an id such as 7) are wired where a result surely gave them.
Where the source is ambiguous, the replay stops as soon as the possible sources differ.
"""

import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from em.behaviour.agent_run import Call, Run, refuse_unfinished, refuse_unknown_effects
from em.behaviour.behaviour import Answer, Behaviour, Capture, Step, Twin, result_hash
from em.behaviour.codec import NotEncodable, encode
from em.behaviour.likeness import facts_of, is_one_of_few, traits_of
from em.behaviour.task import HOLE, Params, Task, constant_texts, escaped, followed, param_names
from em.behaviour.tool import EngineTool
from em.compiler.calls import Names, result_name, words_of
from em.compiler.wire import OUTPUT, Wiring, literal, plain_segment
from em.errors import EmError, ExpressionError, NotRecordable
from em.runner.expressions.language import compile_value, parse_reference
from em.values.canonical import Json, identical
from em.values.leaves import Path, Scalar, Segment, is_informative, leaves, mentioned_in, texts

_NUMBERS = ("number", "no", "nr", "id")
"""Words that stand before an id in texts."""

Place = tuple[int, tuple[str | int, ...]]


class Source(NamedTuple):
    """A leaf of a call's result."""

    call: int
    path: Path
    value: Scalar

    @property
    def place(self) -> Place:
        """The number of the call, and the path in its result."""
        return self.call, tuple(part.key for part in self.path)


def says_nothing(value: Any) -> bool:
    """Return whether a value is too common to show its source."""
    return value is None or isinstance(value, bool)


class Sources:
    """The leaves of the results so far, and when each value was first used.

    names: the names under which the calls' results are saved.
    """

    def __init__(self, calls: Sequence[Call], names: Sequence[str]) -> None:
        self._calls, self._names = calls, names
        self._by_value: dict[bytes, list[Source]] = {}
        self._by_text: dict[str, list[Source]] = {}
        self._first_use: dict[bytes, int] = {}

    def add_result(self, number: int) -> None:
        """Add the result of a call."""
        for path, leaf in leaves(self._calls[number].result):
            source = Source(number, path, leaf)
            self._by_value.setdefault(msgspec.json.encode(leaf), []).append(source)
            if not says_nothing(leaf):
                self._by_text.setdefault(str(leaf), []).append(source)

    def equal(self, value: Any, *, as_text: bool = False) -> list[Source]:
        """Return the places in results that equal this value."""
        if as_text:
            return self._by_text.get(str(value), [])
        if isinstance(value, dict | list):
            return []
        return self._by_value.get(msgspec.json.encode(value), [])

    def is_named(self, source: Source, name: str) -> bool:
        """Return whether a result's field has an argument's name; `id` matches `order_id`."""
        plain = name.lower()
        if not plain:
            return False
        words = words_of(self._calls[source.call].tool.name)
        about = {*words, *(f"{word}s" for word in words), *(f"{word}_id" for word in words)}
        if not source.path:
            # The whole result of `new_ticket` is a `ticket`; that of `stock` isn't a `quantity`.
            made = plain.endswith("id") and self._calls[source.call].tool.writes
            return (made or plain in about) and not says_nothing(source.value)
        last = source.path[-1]
        key = str(last.key).lower()
        if last.in_collection:
            return False
        if key == "id" and (plain in about or plain in _NUMBERS):
            return True  # the id in the result of `create_order`, passed as `order`
        return key == plain or (key == "id" and plain.endswith("id")) or plain.endswith(f"_{key}")

    def was_used_before(self, source: Source) -> bool:
        """Return whether the agent used the value before this result existed."""
        first = self._first_use.get(msgspec.json.encode(source.value))
        return first is not None and first < self._calls[source.call].ended

    def note_use(self, value: Any, tick: int) -> None:
        """Note that a value was passed on at this tick."""
        for _, leaf in leaves(value):
            self._first_use.setdefault(msgspec.json.encode(leaf), tick)

    def expression(self, source: Source) -> str:
        """Return the expression of a source."""
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
        """Return whether a value was passed on before."""
        return msgspec.json.encode(value) in self._first_use


def short_name(call: Call) -> str:
    """Return a tool's name without its class."""
    return call.tool.name.rpartition(".")[2]


def pinned(task: Task, steps: Sequence[Step], answer: Answer, lost: set[str]) -> Json:
    """Return the params whose use can't be followed: they must be equal on a replay."""
    templates = [*(step.args for step in steps), answer.value]
    names = param_names(task.params)
    found = followed(templates, list(names.values()))
    texts = list(constant_texts(templates))
    derived = _has_own_numbers(task, templates)
    found_pins = {}
    for name, value in task.params.items():
        # "ERIK" in a template was made from the param "erik" by the agent.
        bent = isinstance(value, str) and any(_is_in(value, text) for text in texts)
        # Params of equal value are part of the key, so following any of them is enough.
        equal = [names[other] for other, same in task.params.items() if identical(same, value)]
        # 30 may be ten times a param of 3.
        bent = bent or (derived and is_number(value))
        if found.isdisjoint(equal) or bent or not lost.isdisjoint(equal):
            found_pins[name] = value
    return found_pins


def is_number(value: Any) -> bool:
    """Return whether a value is a number and not a bool."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _has_own_numbers(task: Task, templates: Any) -> bool:
    """Return whether a template has numbers that come from neither the task nor a result."""
    known = {leaf for _, leaf in leaves(task.inputs) if is_number(leaf)}
    return any(is_number(leaf) and leaf not in known for _, leaf in leaves(templates))


def _is_in(value: str, text: str) -> bool:
    """Return whether a text contains a value, in upper or lower case."""
    if len(value) < 4:
        return len(value) == 3 and mentioned_in(value, text)
    return value.casefold() in text.casefold()


_NUMBER = re.compile(
    r"(?:(?<![A-Za-z])(?P<before>[A-Za-z]{1,40})[ #:/]{1,2})?"
    r"(?<![\w.,-])(?P<word>(?=[\w-]{0,40}\d)[\w-]{1,80}(?:\.\d{1,20})?)(?!\w|[.,]\d)"
)
"""Matches a word with a digit, and the word before it."""

_ONLY = re.compile(r"only\(([^()]*)\)")
_THE_ONE = "the_only_one"
_POSITION = re.compile(r"\[\d+\]|\bnth\(")

LONGEST_TEXT = 10_000
"""Single numbers are not searched in longer texts: it is slow, and they show little."""

MAX_TWINS = 3
"""How many places of one result are compared with a value that may come from them."""


def compose(run: Run, task: Task, value: Any, hint: Any, seconds: float) -> Behaviour:
    """Make the behaviour of a run that succeeded; raise NotRecordable if it can't be stored."""
    if run.problem is not None:
        raise run.problem
    refuse_unfinished(run)
    calls = [call for call in run.calls if call.ended]
    refuse_unknown_effects(run.calls)
    if not calls:
        raise NotRecordable(
            "the agent called no tool",
            fix="a behaviour is made of calls of decorated tools",
        )
    composer = _Composer(run, task, calls)
    steps = [composer.step(number) for number in range(len(calls))]
    answer = composer.answer(value, hint)
    steps = composer.with_explained(steps)
    return Behaviour(
        task=task.template,
        tags=list(task.tags),
        params=list(task.params),
        # Another value of a param may choose another item, unless a check looks at the choice.
        pinned=dict(task.params)
        if any(_takes_by_position(step) for step in steps)
        else pinned(task, steps, answer, composer.lost),
        steps=steps,
        answer=answer,
        seconds=seconds,
        tokens=run.tokens,
        cost_usd=run.cost_usd,
    )


def _takes_by_position(step: Step) -> bool:
    """Return whether a call without a check takes an item of a list by its position."""
    holes = (hole for text in texts(step.args) for hole in HOLE.findall(text))
    return step.pre is None and any(map(_POSITION.search, holes))


def _in_literals(template: str, change: Callable[[str], str]) -> str:
    """Return a template with `change` applied outside of its expressions."""
    parts = HOLE.split(template)
    if any(mark in part for part in parts[::2] for mark in ("{{", "}}", "{%", "{#")):
        return template
    parts[::2] = [change(part) for part in parts[::2]]
    parts[1::2] = [f"{{{{{inside}}}}}" for inside in parts[1::2]]
    return "".join(parts)


def _is_inside_word(before: str, value: Any, after: str) -> bool:
    """Return whether a word is part of a longer one, as Mark in Marketing; ids don't count."""
    if not isinstance(value, str) or not value.isalpha():
        return False
    return before[-1:].isalnum() or after[:1].isalnum()


def _is_like_an_id(value: Any) -> bool:
    """Return whether a literal looks like an id: a number, or a text with a digit."""
    if isinstance(value, str):
        return _is_own_text(value) and any(map(str.isdigit, value))
    return is_number(value) and value not in (0, 1, -1)


def _is_own_text(value: Any) -> bool:
    return isinstance(value, str) and "{{" not in value and is_informative(value)


def _with_spaces(template: Any) -> Any:
    """Keep the spaces around a text that is one expression, so that it stays a text."""
    if not isinstance(template, str) or template == template.strip() or "{{" not in template:
        return template
    inner = template.strip()
    before, _, after = template.partition(inner)
    return "".join(
        [
            f"{{{{ {msgspec.json.encode(before).decode()} }}}}" if before else "",
            inner,
            f"{{{{ {msgspec.json.encode(after).decode()} }}}}" if after else "",
        ]
    )


class _Composer:
    def __init__(self, run: Run, task: Task, calls: Sequence[Call]) -> None:
        self._task = task
        self._calls = calls
        places = {id(call): n for n, call in enumerate(calls)}
        self._step_of = {
            n: places[id(call)] for n, call in enumerate(run.calls) if id(call) in places
        }
        self._params = Params(task.params, param_names(task.params))
        # A param that has an argument of its own name is not searched in other short values.
        self._named_params = {name for call in calls for name in self._params.named_in(call.args)}
        names = Names()
        self._wiring = Wiring(task.inputs, names)
        self._scope: Json = dict(task.inputs)
        self._names = [
            names.free(result_name(short_name(call), is_write=call.tool.writes)) for call in calls
        ]
        self._sources = Sources(calls, self._names)
        self._answers: dict[tuple[EngineTool, str], set[str]] = {}
        for call in calls:
            asked = call.tool, result_hash(call.args)
            self._answers.setdefault(asked, set()).add(result_hash(call.result))
        self._known: set[int] = set()
        self._claimed: set[Place] = set()
        # An object that is passed on is a handle, such as a page; other objects were read.
        self._handles = {self._step_of.get(n) for call in calls for n in call.live.values()}
        self._hides = ""
        self._is_read = False
        self.lost: set[str] = set()
        """Inputs that appear in the recording and could not be followed."""

    def _learn_until(self, tick: int) -> None:
        """Add the results that existed at this tick as possible sources."""
        done = [
            (call.ended, number)
            for number, call in enumerate(self._calls)
            if call.ended < tick and number not in self._known
        ]
        for _, number in sorted(done):
            call = self._calls[number]
            self._known.add(number)
            self._scope[self._names[number]] = call.result
            if call.opaque:
                self._hides = self._hides or call.tool.name
                self._is_read = self._is_read or number not in self._handles
            self._wiring.add_result(number, self._names[number], call.result)
            self._sources.add_result(number)

    def step(self, number: int) -> Step:
        """Return a call as a step."""
        call = self._calls[number]
        self._learn_until(call.began)
        wired, _ = self._wiring.wire(call.args, "", number, "args")
        twins: list[Twin] = []
        args = {}
        self._claimed = {
            source.place
            for name, value in call.args.items()
            for source in self._sources.equal(value)
            if self._sources.is_named(source, name)
        }
        for name, value in call.args.items():
            template = wired[name] if isinstance(wired, dict) else value
            template = self._finished(value, template, name, name, twins)
            args[name] = self._proved(template, value)
            if self._hides:
                self._refuse_hidden(args[name], f"tool {call.tool.name}, argument {name}")
            self._sources.note_use(value, call.began)
        return Step(
            tool=call.tool.name,
            code=call.tool.code,
            args=args,
            forms=call.forms,
            live={name: self._step_of[source] for name, source in call.live.items()},
            twins=twins,
            save_as=self._names[number],
            gave=result_hash(call.result),
            asked=[result_hash(call.args)] if self._is_asking(call) else [],
            seen=self._seen(call),
            pre=self._capture(call.pre),
            post=self._capture(call.post),
            seconds=call.seconds,
        )

    def _seen(self, call: Call) -> dict[str, list[str]]:
        """Return the hashes of what a call returned, to be compared on a replay."""
        if call.opaque:
            return {}
        if self._is_asking(call):
            found = traits_of(call.result)
        else:
            found = facts_of(call.result, call.args, self._task.inputs)
        return {path: [trait] for path, trait in found.items()}

    def _is_asking(self, call: Call) -> bool:
        """Return whether a call was made to know something.

        Not if its name says that it writes, or if it gave something else when it was made again.
        """
        answers = self._answers[call.tool, result_hash(call.args)]
        return not call.tool.writes or (call.tool.reads and len(answers) == 1)

    def with_explained(self, steps: Sequence[Step]) -> list[Step]:
        """Return the steps; what arguments take from a result may differ in it."""
        uses, chosen = self._explained([step.args for step in steps])
        return [
            msgspec.structs.replace(
                step,
                seen={
                    path: [] if path in uses.get(step.save_as or "", ()) else traits
                    for path, traits in step.seen.items()
                },
                chosen=step.save_as in chosen,
            )
            for step in steps
        ]

    def _explained(self, templates: Any) -> tuple[dict[str, list[str]], set[str]]:
        """Return the paths that expressions surely take, by result, and results by position."""
        uses: dict[str, list[str]] = {}
        chosen: set[str] = set()
        numbers = {name: number for number, name in enumerate(self._names)}
        for hole in (hole for text in texts(templates) for hole in HOLE.findall(text)):
            if _POSITION.search(hole):
                chosen |= followed([f"{{{{{hole}}}}}"], self._names)
                continue
            reference = parse_reference(_ONLY.sub(rf"\1.{_THE_ONE}", hole))
            if reference is None or reference[0] not in numbers:
                continue
            # What a write made is passed on, and seldom looked at.
            of_write = self._calls[numbers[reference[0]]].tool.writes
            if of_write or self._is_sure(self._value_of(f"{{{{{hole}}}}}")):
                path = "".join("*" if part == _THE_ONE else f".{part}" for part in reference[1])
                uses.setdefault(reference[0], []).append(path)
        return uses, chosen

    def _is_sure(self, value: Any) -> bool:
        """Return whether a text stands in one place only: not in the task, nor elsewhere."""
        if not isinstance(value, str) or is_one_of_few(value) or not is_informative(value):
            return False
        places = [
            source
            for source in self._sources.equal(value)
            if not any(leaf == value for _, leaf in leaves(self._calls[source.call].args))
        ]
        return len(places) == 1 and not self._is_in_task(value)

    def _refuse_hidden(self, template: Any, place: str) -> None:
        """Refuse an id without a source: it may come from an object that can't be inspected."""
        for _, leaf in leaves(template):
            suspect = _is_like_an_id(leaf) or (self._is_read and _is_own_text(leaf))
            if suspect and not self._sources.is_used(leaf) and not self._is_in_task(str(leaf)):
                raise NotRecordable(
                    f"{leaf!r} may come from the result of {self._hides}, which can't be inspected",
                    place=place,
                    fix=f"let {self._hides} return a dataclass, a model or plain values",
                )

    def _capture(self, capture: Capture | None) -> Capture | None:
        """Fill params into a capture. Results are not wired, so that changes are noticed."""
        if capture is None:
            return None
        value = self._params.fill(capture.value, cautious=True)
        return msgspec.structs.replace(capture, value=self._proved(value, capture.value))

    def answer(self, value: Any, hint: Any) -> Answer:
        """Return the agent's answer as an expression."""
        self._learn_until(sys.maxsize)
        self._claimed = set()
        try:
            encoded, form = encode(value, hint)
        except NotEncodable as problem:
            for number in range(len(self._calls) - 1, -1, -1):
                if self._calls[number].value is value:
                    return Answer(live=number)
            raise NotRecordable(
                f"the agent's return value can't be stored: {problem}",
                place="the agent's return value",
                fix="annotate the agent's return type, or return plain values",
            ) from None
        twins: list[Twin] = []
        template = self._whole_result(encoded)
        if template is None:
            wired, _ = self._wiring.wire(encoded, "", len(self._calls), OUTPUT)
            template = self._finished(encoded, wired, "", OUTPUT, twins)
        proved = self._proved(template, encoded)
        if self._hides:
            self._refuse_hidden(proved, "the agent's return value")
        return Answer(value=proved, form=form, twins=twins, uses=self._explained([proved])[0])

    def _whole_result(self, value: Any) -> str | None:
        """Return the expression of the newest call whose whole result is the answer, or None."""
        if value is None or self._params.whole(value) is not None:
            return None  # nothing, or a param
        for number in range(len(self._calls) - 1, -1, -1):
            call = self._calls[number]
            if not call.opaque and identical(call.result, value):
                return f"{{{{ {self._names[number]} }}}}"
        return None

    def _finished(self, value: Any, wired: Any, name: str, place: str, twins: list[Twin]) -> Any:
        """Wire what the compiler's wiring left as it was: params, and short values of results."""
        if self._params:
            whole = self._params.whole(value, place=name, by_name=self._named_params)
            if whole is not None:
                # A result of equal value must still agree with the param on a replay.
                self._watch(self._sources.equal(value), place, whole, twins)
                return whole
        if isinstance(value, dict) and isinstance(wired, dict):
            return {
                key: self._finished(item, wired[key], key, f"{place}.{key}", twins)
                for key, item in value.items()
            }
        if isinstance(value, list) and isinstance(wired, list):
            return [
                self._finished(item, part, name, f"{place}[{n}]", twins)
                for n, (item, part) in enumerate(zip(value, wired, strict=True))
            ]
        if isinstance(value, str) and isinstance(wired, str):
            return self._text(value, wired, name, place, twins)
        is_scalar = not isinstance(value, dict | list)
        if is_scalar and (wired == literal(value) or self._is_guess(value, wired)):
            return self._short(value, name, place, twins)
        return wired

    def _is_guess(self, value: Scalar, wired: Any) -> bool:
        """Return whether a result was wired to a value so short that it may be a constant."""
        if is_informative(value) or not isinstance(wired, str):
            return False
        return any(not self._is_input(hole) for hole in HOLE.findall(wired))

    def _is_input(self, expression: str) -> bool:
        return bool(followed([f"{{{{{expression}}}}}"], list(self._task.inputs)))

    def _text(self, value: str, wired: str, name: str, place: str, twins: list[Twin]) -> Any:
        """Fill params into a text, then short values of results."""
        if wired != literal(value) and self._is_guess(value, wired):
            wired = literal(value)
        if len(value) <= LONGEST_TEXT:
            wired = self._without_guesses(wired, place, twins)
        if self._params:
            plain = wired == literal(value)
            wired = self._filled(value if plain else wired, place, twins, plain=plain)
        if wired == value:
            wired = self._short(value, name, place, twins)
        if len(value) <= LONGEST_TEXT:
            wired = _in_literals(wired, lambda part: self._numbers(part, place, twins))
        return _with_spaces(wired)

    def _filled(self, text: str, place: str, twins: list[Twin], *, plain: bool) -> str:
        """Fill params into a text; a number that has its own argument is only compared."""
        chance: list[str] = []

        def within(part: str) -> str:
            filled, left = self._params.within_text(part, self._named_params)
            chance.extend(left)
            return filled

        filled = within(text) if plain else _in_literals(text, within)
        for expression, value in self._params.numbers(chance):
            twins.append(Twin(place, f"{{{{ {expression} }}}}", value))
        return filled

    def _without_guesses(self, template: str, place: str, twins: list[Twin]) -> str:
        """Undo wirings that may be chance: small numbers, and words inside of other words.

        `_numbers` looks at the small numbers again.
        """
        parts = HOLE.split(template)
        if len(parts) == 1 or any("{" in part for part in parts[::2]):
            return template
        for n in range(1, len(parts), 2):
            hole = f"{{{{{parts[n]}}}}}"
            known, of_task = self._value_of(hole), self._is_input(parts[n])
            is_number = isinstance(known, int | float) and not is_informative(known)
            inside = _is_inside_word(parts[n - 1], known, parts[n + 1])
            if inside and not of_task:
                twins.append(Twin(place, hole, literal(known)))
            parts[n] = str(known) if inside or (is_number and not of_task) else hole
        return "".join(parts)

    def _value_of(self, hole: str) -> Any:
        try:
            return compile_value(hole, "")(self._scope)
        except (EmError, ExpressionError, ValueError, TypeError):
            return None

    def _numbers(self, text: str, place: str, twins: list[Twin]) -> str:
        """Wire words with digits to results, such as the id in `order 7`."""

        def fill(match: re.Match[str]) -> str:
            word = match["word"]
            before = match["before"] or ""
            template = self._wired(word, before, place, twins, as_text=True)
            return match.group().removesuffix(word) + str(template)

        return _NUMBER.sub(fill, text)

    def _short(self, value: Scalar, name: str, place: str, twins: list[Twin]) -> Any:
        """Wire a short value if a result surely gave it; compare if one may have given it."""
        return literal(value) if value == "" else self._wired(value, name, place, twins)

    def _wired(
        self, value: Scalar, name: str, place: str, twins: list[Twin], *, as_text: bool = False
    ) -> Any:
        equal = self._sources.equal(value, as_text=as_text)
        sure = [source for source in equal if self._sources.is_named(source, name)]
        of_task = self._is_in_task(str(value)) if as_text else self._is_of_task(value)
        if sure:
            # Take the newest; others of equal value must still agree with it.
            own = f"{{{{ {self._sources.expression(sure[-1])} }}}}"
            self._watch(sure[:-1], place, own, twins)
            if of_task and not as_text and not says_nothing(value):
                # The task has the value too: it must still agree.
                twins.append(Twin(place, own, literal(value)))
            return own
        if says_nothing(value):
            equal = [source for source in equal if not source.path]
        # An argument may be a constant; in an answer or a text, an old value would be wrong.
        if not (as_text or place.startswith(OUTPUT)):
            equal = [source for source in equal if not self._sources.was_used_before(source)]
            if value in (0, 1, -1):
                # In `add(cart=1, quantity=1)` only the cart is the result of `open_cart`.
                equal = [source for source in equal if source.place not in self._claimed]
        self._watch(equal, place, None, twins)
        return literal(value)

    def _watch(
        self, sources: Sequence[Source], place: str, own: str | None, twins: list[Twin]
    ) -> None:
        """Note results of equal value: if one differs on a replay, the source is ambiguous."""
        seen: dict[int, int] = {}
        for source in sources:
            seen[source.call] = seen.get(source.call, 0) + 1
            if seen[source.call] <= MAX_TWINS:
                there = f"{{{{ {self._sources.expression(source)} }}}}"
                if there != own:
                    twins.append(Twin(place, there, own or literal(source.value)))

    def _is_of_task(self, value: Scalar) -> bool:
        return any(identical(leaf, value) for _, leaf in leaves(self._task.inputs))

    def _is_in_task(self, word: str) -> bool:
        texts = [str(leaf) for _, leaf in leaves(self._task.inputs)]
        return any(word in text and (word == text or mentioned_in(word, text)) for text in texts)

    def _proved(self, template: Any, value: Any) -> Any:
        """Return the template if it gives the recorded value in its own run; else the value."""
        try:
            if identical(compile_value(template, "")(self._scope), value):
                return template
        except (EmError, ExpressionError, ValueError, TypeError):
            pass
        if lost := followed(template, self._names):
            raise NotRecordable(
                f"the value from {', '.join(sorted(lost))} can't be filled in again",
                fix="pass it in an argument of its own",
            )
        self.lost |= followed(template, list(self._task.inputs))
        return escaped(value)
