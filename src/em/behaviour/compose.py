"""From a run to a behaviour: each value is wired to where it came from.

The compiler's wiring does most of it. Two things are added here, because a behaviour acts without
being read by a person first: short values (an id that is 7) are wired where a result gave them, and
where it can't be told whether a result gave them, the replay stops as soon as that matters.
"""

import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from em.behaviour.model import (
    Answer,
    Behaviour,
    Capture,
    Step,
    Task,
    Twin,
    result_hash,
)
from em.behaviour.params import HOLE, Params, constant_texts, escaped, followed, param_names
from em.behaviour.recording import Call, Run
from em.behaviour.values import Unkept, keep
from em.compiler.calls import TracedCall, infer_effect
from em.compiler.naming import Names, result_name, words_of
from em.compiler.values import Path, Scalar, Segment, leaves, said_in
from em.compiler.wire import OUTPUT, Wiring
from em.compiler.wire_text import literal, plain_segment
from em.errors import EmError, ExpressionError, NotRecordable
from em.models.canonical import Json, identical
from em.runner.expressions import compile_value

_NUMBER = re.compile(
    r"(?:(?P<before>[A-Za-z]+)[ #:]{1,2})?"
    r"(?<![\w.,-])(?P<word>[\w-]*\d[\w-]*(?:\.\d+)?)(?!\w|[.,]\d)"
)
"""A word with a digit in a text, and the word that stands before it."""

MAX_TWINS = 3
"""A value that stands in more places of the results than this is there by chance."""


def compose(run: Run, task: Task, value: Any, hint: Any, seconds: float) -> Behaviour:
    """The behaviour of a run that ended well; NotRecordable if it can't be kept."""
    if run.problem is not None:
        raise run.problem
    calls = [call for call in run.calls if call.ended]
    _refuse_unknown_effects(run.calls)
    if not calls:
        raise NotRecordable(
            "the agent called no tool",
            fix="a behaviour is made of calls of decorated tools",
        )
    composer = _Composer(run, task, calls)
    steps = [composer.step(number) for number in range(len(calls))]
    answer = composer.answer(value, hint)
    return Behaviour(
        task=task.template,
        tags=list(task.tags),
        params=list(task.params),
        pinned=_pinned(task, steps, answer),
        steps=steps,
        answer=answer,
        seconds=seconds,
        tokens=run.tokens,
        cost_usd=run.cost_usd,
    )


def _refuse_unknown_effects(calls: Sequence[Call]) -> None:
    """A write that failed so that nobody knows whether it happened can be neither kept nor left."""
    for number, call in enumerate(calls):
        if call.error is None:
            continue
        name = call.tool.name.rpartition(".")[2]
        traced = TracedCall(
            index=number,
            name=name,
            is_udf=False,
            args=call.args,
            result=None,
            error=f"{type(call.error).__name__}: {call.error}",
            effect=infer_effect(name),
            effect_inferred=True,
            said="",
        )
        again = any(
            later.ended and later.tool is call.tool and identical(later.args, call.args)
            for later in calls[number + 1 :]
        )
        if traced.effect_unknown and not again:
            raise NotRecordable(
                f"a call failed so that its effect is unknown: {traced.error}",
                place=f"tool {call.tool.name}",
            )


def _pinned(task: Task, steps: Sequence[Step], answer: Answer) -> Json:
    """The params whose use can't be followed: they must be the same on a replay."""
    templates = [*(step.args for step in steps), answer.value]
    names = param_names(task.params)
    found = followed(templates, list(names.values()))
    texts = list(constant_texts(templates))
    pinned = {}
    for name, value in task.params.items():
        # "ERIK" was made from "erik" in a way that nobody recorded.
        bent = isinstance(value, str) and any(_is_in(value, text) for text in texts)
        # Which of several params of one value was meant is part of the key, so any will do.
        equal = [names[other] for other, same in task.params.items() if identical(same, value)]
        if found.isdisjoint(equal) or bent:
            pinned[name] = value
    return pinned


def _is_in(value: str, text: str) -> bool:
    """Whether a text holds a value, written in whatever case."""
    if len(value) < 4:
        return len(value) == 3 and said_in(value, text)
    return value.casefold() in text.casefold()


def _in_literals(template: str, change: Callable[[str], str]) -> str:
    """A template with what stands outside of its expressions changed."""
    parts = HOLE.split(template)
    if any(mark in part for part in parts[::2] for mark in ("{{", "}}", "{%", "{#")):
        return template
    parts[::2] = [change(part) for part in parts[::2]]
    parts[1::2] = [f"{{{{{inside}}}}}" for inside in parts[1::2]]
    return "".join(parts)


class _Source(NamedTuple):
    call: int
    path: Path
    value: Scalar


class _Composer:
    def __init__(self, run: Run, task: Task, calls: Sequence[Call]) -> None:
        self._task = task
        self._calls = calls
        places = {id(call): n for n, call in enumerate(calls)}
        self._step_of = {
            n: places[id(call)] for n, call in enumerate(run.calls) if id(call) in places
        }
        self._params = Params(task.params, param_names(task.params))
        # A param that is passed on under its own name is not looked for in other short values.
        self._named_params = {name for call in calls for name in self._params.named_in(call.args)}
        names = Names()
        self._wiring = Wiring(task.inputs, names)
        self._scope: Json = dict(task.inputs)
        self._names = [
            names.free(
                result_name(
                    call.tool.name.rpartition(".")[2],
                    is_write=infer_effect(call.tool.name.rpartition(".")[2]) == "write",
                )
            )
            for call in calls
        ]
        self._by_value: dict[bytes, list[_Source]] = {}
        self._by_text: dict[str, list[_Source]] = {}
        self._known: set[int] = set()
        self._first_use: dict[bytes, int] = {}

    def _learn_until(self, tick: int) -> None:
        """Results that were there at this moment may be where values come from."""
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
                continue
            self._wiring.add_result(number, self._names[number], call.result)
            for path, leaf in leaves(call.result):
                if leaf is not None and not isinstance(leaf, bool):
                    source = _Source(number, path, leaf)
                    self._by_value.setdefault(msgspec.json.encode(leaf), []).append(source)
                    self._by_text.setdefault(str(leaf), []).append(source)

    def step(self, number: int) -> Step:
        """A call as a step."""
        call = self._calls[number]
        self._learn_until(call.began)
        wired, _ = self._wiring.wire(call.args, "", number, "args")
        twins: list[Twin] = []
        args = {}
        for name, value in call.args.items():
            template = wired[name] if isinstance(wired, dict) else value
            template = self._finished(value, template, name, name, twins)
            args[name] = self._proved(template, value)
            self._note_use(value, call.began)
        return Step(
            tool=call.tool.name,
            code=call.tool.code,
            args=args,
            forms=call.forms,
            live={name: self._step_of[source] for name, source in call.live.items()},
            twins=twins,
            save_as=self._names[number],
            gave=result_hash(call.result),
            pre=self._capture(call.pre),
            post=self._capture(call.post),
            seconds=call.seconds,
        )

    def _capture(self, capture: Capture | None) -> Capture | None:
        """What a check saw. Results are not wired: then it could never see that they changed."""
        if capture is None:
            return None
        value = self._params.fill(capture.value, cautious=True)
        return msgspec.structs.replace(capture, value=self._proved(value, capture.value))

    def answer(self, value: Any, hint: Any) -> Answer:
        """What the agent returned."""
        self._learn_until(sys.maxsize)
        try:
            kept, form = keep(value, hint)
        except Unkept as problem:
            for number in range(len(self._calls) - 1, -1, -1):
                if self._calls[number].value is value:
                    return Answer(live=number)
            raise NotRecordable(
                f"the agent returned what can't be kept: {problem}",
                place="the agent's return value",
                fix="annotate what the agent returns with its type, or return plain values",
            ) from None
        twins: list[Twin] = []
        template = self._whole_result(kept)
        if template is None:
            wired, _ = self._wiring.wire(kept, "", len(self._calls), OUTPUT)
            template = self._finished(kept, wired, "", OUTPUT, twins)
        return Answer(value=self._proved(template, kept), form=form, twins=twins)

    def _whole_result(self, value: Any) -> str | None:
        """An answer that is just what a call gave, however short; the newest such call."""
        if value is None or self._params.whole(value) is not None:
            return None  # nothing, or a param
        for number in range(len(self._calls) - 1, -1, -1):
            call = self._calls[number]
            if not call.opaque and identical(call.result, value):
                return f"{{{{ {self._names[number]} }}}}"
        return None

    def _finished(self, value: Any, wired: Any, name: str, place: str, twins: list[Twin]) -> Any:
        """What the wiring left as it was: params, however short, and short values of results."""
        if self._params:
            whole = self._params.whole(value, place=name, by_name=self._named_params)
            if whole is not None:
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
        if wired != literal(value) or isinstance(value, dict | list):
            return wired
        return self._short(value, name, place, twins)

    def _text(self, value: str, wired: str, name: str, place: str, twins: list[Twin]) -> Any:
        """A text: params are filled in, then the short values of results."""
        if self._params:
            plain = wired == literal(value)
            within = self._params.within
            wired = within(value) if plain else _in_literals(wired, within)
        if wired == value:
            wired = self._short(value, name, place, twins)
        return _in_literals(wired, lambda part: self._numbers(part, place, twins))

    def _numbers(self, text: str, place: str, twins: list[Twin]) -> str:
        """A text in which words with digits are results' values, such as the id in `order 7`."""

        def fill(match: re.Match[str]) -> str:
            word = match["word"]
            before = match["before"] or ""
            template = self._wired(word, before, place, twins, as_text=True)
            return match.group().removesuffix(word) + str(template)

        return _NUMBER.sub(fill, text)

    def _short(self, value: Scalar, name: str, place: str, twins: list[Twin]) -> Any:
        """A short value: wired if a result surely gave it, watched if one may have given it."""
        if value is None or isinstance(value, bool) or value == "" or self._is_of_task(value):
            return literal(value)
        return self._wired(value, name, place, twins)

    def _wired(
        self, value: Scalar, name: str, place: str, twins: list[Twin], *, as_text: bool = False
    ) -> Any:
        if as_text:
            equal = self._by_text.get(str(value), [])
        else:
            equal = self._by_value.get(msgspec.json.encode(value), [])
        found = [source for source in equal if not self._was_used_before(source)]
        sure = [source for source in equal if source.path and self._is_named(source, name)]
        if not sure and not (as_text and self._is_in_task(str(value))):
            sure = [source for source in found if as_text or not source.path]
        if sure:
            # The newest is taken; another that gave the same must still agree with it.
            own, *others = dict.fromkeys(self._expression(source) for source in reversed(sure))
            others = others if len(others) <= MAX_TWINS else []
            twins += [Twin(place, f"{{{{ {other} }}}}", f"{{{{ {own} }}}}") for other in others]
            return f"{{{{ {own} }}}}"
        # In an answer or a text an old value would be wrong; an argument may well be a constant.
        likely_old = as_text or place.startswith(OUTPUT)
        unsure = equal if likely_old else [] if value in (0, 1, -1) else found
        if len(unsure) <= MAX_TWINS:
            twins += [
                Twin(place, f"{{{{ {self._expression(source)} }}}}", literal(source.value))
                for source in unsure
            ]
        return literal(value)

    def _is_named(self, source: _Source, name: str) -> bool:
        """Whether a result's field is what an argument is called: `id` will do for `order_id`."""
        last = source.path[-1]
        key, plain = str(last.key).lower(), name.lower()
        if last.in_collection or not plain:
            return False
        if key == "id" and plain in words_of(self._calls[source.call].tool.name):
            return True  # the id that `create_order` gave, as `order`
        return key == plain or (key == "id" and plain.endswith("id")) or plain.endswith(f"_{key}")

    def _is_of_task(self, value: Scalar) -> bool:
        return any(identical(leaf, value) for _, leaf in leaves(self._task.inputs))

    def _is_in_task(self, word: str) -> bool:
        texts = [str(leaf) for _, leaf in leaves(self._task.inputs)]
        return any(said_in(word, text) or word == text for text in texts)

    def _was_used_before(self, source: _Source) -> bool:
        """What the agent used before the result was there did not come from it."""
        first = self._first_use.get(msgspec.json.encode(source.value))
        return first is not None and first < self._calls[source.call].ended

    def _note_use(self, value: Any, tick: int) -> None:
        for _, leaf in leaves(value):
            self._first_use.setdefault(msgspec.json.encode(leaf), tick)

    def _expression(self, source: _Source) -> str:
        text = self._names[source.call]
        for part in source.path:
            if not part.in_collection:
                text += plain_segment(part)
            elif isinstance(part.of, dict):
                text += plain_segment(Segment(list(part.of)[int(part.key)], False, None))
            else:
                text += f"[{part.key}]"
        return text

    def _proved(self, template: Any, value: Any) -> Any:
        """A template that gives the recorded value in the recorded run; else the value itself."""
        try:
            if identical(compile_value(template, "")(self._scope), value):
                return template
        except (EmError, ExpressionError, ValueError, TypeError):
            pass
        return escaped(value)
