"""Session routine: what coding sessions did alike, written as a routine of plain steps.

All looks come first, then every check, then the effects, with the test runs that sessions made
between and behind them. A text that is replaced must stand in its file exactly once; what is
written must be as new there as it was in all sessions.
"""

import keyword
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from types import SimpleNamespace
from typing import Any

import msgspec

from em.compiler.alignment import FINE
from em.compiler.calls import TracedCall, identifier, plain_name, specs_of
from em.compiler.evidence import SHORT_TEXT
from em.compiler.example import Call, Example
from em.compiler.facts import Inputs, look_of
from em.compiler.file_changes import EDIT
from em.compiler.forms import FORMS, VALUE, applied
from em.compiler.learner import Learnt, in_order, unconfirmed, with_ids, words_in
from em.compiler.places import is_code
from em.compiler.request_templates import request_templates
from em.compiler.session_values import Differing, Part, SessionValues, Value, Way
from em.compiler.sessions import (
    Look,
    gone,
    inputs_of,
    is_said,
    is_told_by_output,
    sessions_of,
    shown_alike,
)
from em.compiler.skeleton import checks_of
from em.compiler.steps import hole, hole_text, literal_value, quoted
from em.compiler.surroundings import TELLING, shared_start
from em.compiler.term import literal, unused
from em.errors import RoutineError
from em.runner.expressions.functions import lists_only, stands_in, stands_once
from em.runner.expressions.language import whole_expression
from em.runner.tools.coding import CREATE, FILE_TEXT, FILE_THERE, TODAY
from em.traces.trace import Trace
from em.values.call import Effect
from em.values.canonical import Json
from em.values.json_schema import limits_text

LONGEST_FACT = 80
"""Characters of an output that is a fact, and no listing."""


def learn_sessions(
    name: str,
    traces: Sequence[Trace],
    declared: Mapping[str, Effect | None] | None = None,
    names: Mapping[tuple[str, ...], str] | None = None,
) -> Learnt:
    """Learn a routine from sessions that did the same. Raises RoutineError if they did not.

    names: of inputs by their values, as more sessions than these named them.
    """
    sessions = sessions_of(traces, declared)._replace(names=names or {})
    wide, narrow = (inputs_of(sessions, are_whole=one) for one in (True, False))
    if wide != narrow:
        try:
            learnt = _Assembly(name, SessionValues(sessions, wide)).learnt()
        except RoutineError:
            pass  # whole words don't explain all
        else:
            if not learnt.asked:
                return learnt
    return _Assembly(name, SessionValues(sessions, narrow)).learnt()


def _filled(one: str | Differing) -> Any:
    """Return a piece of a text as `checks_of` takes it: in a form, a value is not as it stands."""
    if isinstance(one, str):
        return one
    has_form = any(way.part is not None and way.part.form for way in one.ways)
    return SimpleNamespace(
        spots=[SimpleNamespace(value=value) for value in one.values],
        values=[] if has_form else [(value, None) for value in one.values],
        given="",
    )


class _Writer:
    """Writes looks, and the values of effects, as steps; every text that is found gets a name."""

    def __init__(self, known: SessionValues) -> None:
        self.known, self.size = known, known.sessions.size
        self.top: list[Json] = []
        self._names = {*known.inputs}
        self._reads: dict[int, str] = {}
        self._parts: dict[Part, str] = {}
        self._texts: dict[tuple[Any, ...], str] = {}
        self._checks: dict[frozenset[str], Json] = {}
        self._agreed: list[tuple[Differing, bool]] = []

    def fresh(self, wanted: str) -> str:
        """Return a name that nothing has yet."""
        name = unused(plain_name(wanted), self._names)
        self._names.add(name)
        return name

    # ---- values

    def value(self, value: Value, hint: str = "") -> Any:
        """Return a value as a step has it; write the steps that it needs."""
        if constant := _constant(value):
            return literal_value(constant[0])
        if len(value) == 1:
            return hole(self.text(value, hint))
        for check, numbers in checks_of([*map(_filled, value)]):
            texts = [self._differing(value[n], "", is_bare=True) for n in numbers]
            self.check(check.replace(VALUE, " ~ ".join(dict.fromkeys(texts))))
        made = "".join(
            quoted(one) if isinstance(one, str) else hole_text(self._differing(one, ""))
            for one in value
        )
        # White space around a single expression would not be written.
        return made if whole_expression(made) is None else hole(self.text(value))

    def text(self, value: Value, hint: str = "") -> str:
        """Return a value as an expression; write the steps that it needs."""
        return " ~ ".join(
            literal(one) if isinstance(one, str) else self._differing(one, hint) for one in value
        )

    def named(self, value: Value, wanted: str) -> str:
        """Return a text as an expression, by a name of its own if it is put together."""
        if len(value) == 1:
            return self.text(value)
        if (key := tuple(value)) not in self._texts:
            made = self.value(value)
            self._texts[key] = self.fresh(wanted)
            self.top.append({"type": "let", "value": made, "save_as": self._texts[key]})
        return self._texts[key]

    def _differing(self, one: str | Differing, hint: str, *, is_bare: bool = False) -> str:
        """Return what gives values as an expression. is_bare: before it gets its form."""
        assert not isinstance(one, str), "it differs"
        way = self.known.best(one)
        assert way is not None, "it can be known"
        if is_bare and way.part is not None:
            return self._part(way.part._replace(form=""), hint)
        return self._way(way, one, hint)

    def _way(self, way: Way, one: Differing, hint: str) -> str:
        return literal(one.values[0]) if way.part is None else self._part(way.part, hint)

    def _part(self, part: Part, hint: str) -> str:
        if part.form:
            return part.form.replace(VALUE, self._part(part._replace(form=""), hint))
        if isinstance(part.of, str):
            return part.of
        of = self._look(part.of)
        if part.how and part not in self._parts:
            args = [*map(literal, part.args)]
            if part.effect is not None:
                args.append(self.text(self.known.arguments[part.effect]["new_string"]))
            self._parts[part] = self.fresh(_name_of(part, hint))
            made = hole(f"{part.how}({', '.join([of, *args])})")
            self.top.append({"type": "let", "value": made, "save_as": self._parts[part]})
        return self._parts[part] if part.how else of

    def _look(self, number: int) -> str:
        """Return the name of what a look shows; write the step that makes it."""
        if number not in self._reads:
            look, needed = self.known.looks[number], self.known.needed[number]
            assert needed is not None, "it can be made again"
            args = {name: self.value(one, name) for name, one in needed.items()}
            self._reads[number] = self.fresh(_look_name(look))
            step: Json = {
                "type": "tool.call",
                "tool": look.tool,
                "args": args,
                "save_as": self._reads[number],
            }
            shown = [look.text(one) for one in look.made]
            if all(shown) and look.tool != TODAY:
                # Something and nothing are states, and so is how lines end.
                has_returns = any("\r" in str(one) for one in shown)
                schema = {"minLength": 1} if has_returns else {"pattern": r"^[^\r]+$"}
                step |= {"expect": {"type": "string", **schema}, "held": self._held(len(shown))}
            self.top.append(step)
            for one in needed.values():
                self.agree_on(one, is_write=False)
        return self._reads[number]

    def shown(self, look: Look) -> str:
        """Return the name of what a look shows; "" if it can't be made again."""
        number = next(n for n, one in enumerate(self.known.looks) if one is look)
        return self._look(number) if self.known.is_usable(look) else ""

    def check_step(self, look: Look) -> Json:
        """Return a command that must succeed as a step."""
        number = next(n for n, one in enumerate(self.known.looks) if one is look)
        needed = self.known.needed[number] or {}
        args = {name: self.value(one, name) for name, one in needed.items()}
        # What only some sessions checked says little about where its values come from.
        for one in needed.values() if len(look.made) == self.size else ():
            self.agree_on(one, is_write=False)
        call = next(call for call in look.calls if call is not None)
        name = self.fresh(f"{identifier(call.title)}_passed")
        step = {"type": "tool.call", "tool": look.tool, "args": args, "save_as": name}
        expected = {} if call.result is None else {"expect": {"const": call.result}}
        return {**step, **expected, "held": self._held(len(look.made))}

    # ---- checks

    def agree_on(self, value: Value, *, is_write: bool) -> None:
        """Note that all ways to know what is used must agree."""
        self._agreed += [(one, is_write) for one in value if not isinstance(one, str)]

    def agree(self) -> None:
        """Write that the other ways to know each value that is used agree with it."""
        for one, is_write in self._agreed:  # which grows: ways need looks of their own
            best = self.known.best(one)
            for way in one.ways:
                if way != best and best is not None and (way.part is not None or is_write):
                    left, right = self._way(best, one, ""), self._way(way, one, "")
                    if left != right:
                        self.check(f"{left} == {right}", len(way.made))

    def check(self, text: str, held: int | None = None) -> None:
        """Write a check, unless it is there already in this or the other direction."""
        count = self.size if held is None else held
        step = self._checks.setdefault(frozenset(text.split(" == ")), {})
        if not step:
            step |= {"type": "assert", "check": text, "held": self._held(count)}
            self.top.append(step)
        elif count > int(step["held"].partition("/")[0]):
            step["held"] = self._held(count)

    def _held(self, count: int) -> str:
        return f"{count}/{self.size}"


def _constant(value: Value) -> list[Any]:
    """Return the constant that a value is, in a list; an empty one if it is none."""
    if all(isinstance(one, str) for one in value):
        return ["".join(map(str, value))]
    (one,) = value if len(value) == 1 else ("",)
    is_constant = isinstance(one, Differing) and all(way.part is None for way in one.ways)
    return [one.values[0]] if is_constant and isinstance(one, Differing) else []


def _look_name(look: Look) -> str:
    """Name what a look shows: people read it in hand-overs."""
    if look.tool == TODAY:
        return "today"
    if look.tool != FILE_TEXT:
        return f"{identifier(look.tool.partition('_')[0])}_output"
    names = {str(call.args["file_path"]).rpartition("/")[2] for call in look.calls if call}
    return f"{identifier(names.pop())}_text" if len(names) == 1 else "file_text"


def _name_of(part: Part, hint: str) -> str:
    """Name a part of a text after the last word before it."""
    if part.how != "between":
        return "line" if part.how == "line_place" else "next_number"
    words = [word.strip("_").lower() for word in re.findall(r"[A-Za-z]\w*[A-Za-z]", part.args[0])]
    plain = next((word for word in reversed(words) if not keyword.iskeyword(word)), hint or "part")
    return f"{identifier(plain)}_found"


class _Assembly:
    """Puts the routine of sessions together."""

    def __init__(self, name: str, known: SessionValues) -> None:
        self._name, self._known, self._sessions = name, known, known.sessions
        self._writer = _Writer(known)
        self._constants: list[tuple[str, Any]] = []

    def learnt(self) -> Learnt:
        """Return the routine."""
        writer, known = self._writer, self._known
        steps = [self._effect(number) for number in range(len(known.arguments))]
        checks = [writer.check_step(one.look) for one in known.checks]
        for number in range(len(known.arguments)):
            self._check_effect(number)
        writer.agree()
        self._check_inputs()
        self._check_ends()
        self._check_looks()
        body = [*in_order(writer.top)]
        for number, step in enumerate(steps, 1):
            pairs = zip(known.checks, checks, strict=True)
            body += [step, *(check for one, check in pairs if one.after == number)]
        body = [*with_ids([*body, self._return(steps)])]
        used = {name: values for name, values in known.inputs.items() if name in words_in(body)}
        schema = self._input_schema(body)
        routine: Json = {
            "version": "1",
            "name": self._name,
            "checks": "hand_over",
            "input_schema": schema,
            "requests": request_templates([*self._examples(used)], schema),
            "tools": self._tools(body),
            "steps": body,
        }
        return Learnt(routine, self._constants, known.asked, values=used)

    def _examples(self, used: Mapping[str, Sequence[str]]) -> Iterator[Example]:
        """Yield the sessions with the inputs that they need; what is asked for need not be said."""
        for number, prompt in enumerate(self._sessions.prompts):
            inputs = {
                name: values[number]
                for name, values in used.items()
                if name not in self._known.asked or is_said(values[number], prompt)
            }
            calls = [Call(one.name, one.args) for one in self._sessions.effects[number]]
            yield Example(inputs, calls, request=prompt, name=f"session {number}")

    def _effect(self, number: int) -> Json:
        writer, values = self._writer, self._known.arguments[number]
        calls = [own[number] for own in self._sessions.effects]
        args: Json = {}
        # The place of a new text may depend on the text.
        for name in sorted(values, key="insert_line".__eq__):
            args[name] = writer.value(values[name], name)
            writer.agree_on(values[name], is_write=True)
            if constant := _constant(values[name]):
                self._constants.append((f"{calls[0].name}.{name}", constant[0]))
        if "old_string" in args:
            args["old_string"] = hole(writer.named(values["old_string"], "old_text"))
        name = writer.fresh(f"{identifier(calls[0].title)}_done")
        step = {
            "type": "tool.call",
            "tool": calls[0].name,
            "args": {one: args[one] for one in values},
            "effect": "write",
            "save_as": name,
        }
        is_told = any(map(is_told_by_output, calls))
        return {**step, "expect": {"const": shown_alike(calls)}} if is_told else step

    # ---- checks

    def _check_effect(self, number: int) -> None:
        """Check that a text stands once, and that what is written is new."""
        look, writer = self._sessions.files[number], self._writer
        values = self._known.arguments[number]
        calls = [own[number] for own in self._sessions.effects]
        if calls[0].name == CREATE:
            path = hole(writer.named(values["file_path"], "path"))
            there = {"tool": FILE_THERE, "args": {"file_path": path}, "expect": {"const": False}}
            held = f"{writer.size}/{writer.size}"
            name = writer.fresh("is_there")
            writer.top.append({"type": "tool.call", **there, "save_as": name, "held": held})
        if look is None:
            return
        text = writer.shown(look)
        texts = [look.text(session) or "" for session in range(len(calls))]
        if calls[0].name == EDIT:
            old = writer.named(values["old_string"], "old_text")
            pairs = zip(texts, (call.args["old_string"] for call in calls), strict=True)
            are_lines = all(stands_once(shown, one, "lines") for shown, one in pairs)
            above, below = _around(texts, calls) if are_lines else ([], [])
            whole = " ~ ".join([*map(literal, above), old, *map(literal, below)])
            if are_lines:
                writer.check(f'stands_once({text}, {whole}, "lines")')
            if above or below or not are_lines:
                writer.check(f"stands_once({text}, {old})")
            # What goes stands once in its file, if it did in all sessions: nothing shows whether a
            # second one would have been replaced too.
            lost = [gone(call.args["old_string"], call.args["new_string"]) for call in calls]
            is_once = all(stands_once(one, part) for one, part in zip(texts, lost, strict=True))
            for one in values["old_string"] if is_once else ():
                if isinstance(one, Differing) and [*one.values] == lost:
                    writer.check(f"stands_once({text}, {writer.text([one])})")
        for name in sorted(self._inputs_in(values.get("new_string", ()))):
            given = self._known.inputs[name]
            if not any(stands_in(shown, one) for one, shown in zip(given, texts, strict=True)):
                writer.check(f"not stands_in({text}, {name})")

    def _inputs_in(self, value: Value) -> set[str]:
        ways = (self._known.best(one) for one in value if isinstance(one, Differing))
        parts = (way.part for way in ways if way is not None and way.part is not None)
        return {part.of for part in parts if isinstance(part.of, str)}

    def _check_inputs(self) -> None:
        """Check that inputs of which one was always made of the other still agree."""
        inputs = self._known.inputs
        for name, other in permutations(inputs, 2):
            relation = next(_relations(inputs[name], inputs[other]), "")
            if relation and len({*inputs[name]}) > 1:
                self._writer.check(f"{name} == {relation.replace(VALUE, other)}")

    def _check_ends(self) -> None:
        """Check that inputs begin and end as all did where texts have words of that as well.

        `src/app/users/` in the path of a new file may come from the path that was given.
        """
        fixed = {
            word
            for values in self._known.arguments
            for argument, value in values.items()
            if argument != "old_string"
            for text in [*_constant(value), *value]
            if isinstance(text, str)
            for word in FINE.findall(text)
            if len(word) >= SHORT_TEXT
        }
        for name, given in self._known.inputs.items():
            if len({*given}) == 1 or any(one.split() != [one] for one in given):
                continue
            rows = [FINE.findall(one) for one in given]
            start = shared_start(rows)
            end = shared_start([row[::-1] for row in rows])[::-1]
            if not fixed.isdisjoint(start):
                self._writer.check(f"{name}.startswith({literal(''.join(start))})")
            if not fixed.isdisjoint(end):
                self._writer.check(f"{name}.endswith({literal(''.join(end))})")

    def _check_looks(self) -> None:
        """Check what looks of all sessions showed alike: it may be why they acted."""
        writer = self._writer
        every = self._known.arguments
        paths = [writer.named(one["file_path"], "path") for one in every if "file_path" in one]
        for look in self._sessions.looks:
            if len(look.made) < self._sessions.size or look.tool in (TODAY, FILE_TEXT):
                continue
            shown = [look.text(number) or "" for number in look.made]
            # An output that says nothing, or one thing that is no path.
            is_short = len(shown[0]) <= LONGEST_FACT and "\n" not in shown[0]
            is_fact = len({*shown}) == 1 and is_short and not shown[0].startswith(("/", "~"))
            is_search = bool(paths) and all(
                lists_only(text, *_changed(own))
                for text, own in zip(shown, self._sessions.effects, strict=True)
            )
            text = writer.shown(look) if is_fact or is_search else ""
            if text and is_fact:
                writer.check(f"{text} == {literal(shown[0])}")
            elif text:
                writer.check(f"lists_only({', '.join([text, *paths])})")

    # ---- the rest of the routine

    def _return(self, effects: Sequence[Json]) -> Json:
        paths = [step["args"]["file_path"] for step in effects if "file_path" in step["args"]]
        last = hole(str(effects[-1]["save_as"])) if effects else None
        return {"type": "return", "value": {"changed": [*dict.fromkeys(paths)]} if paths else last}

    def _tools(self, steps: Sequence[Json]) -> list[Json]:
        used = {step["tool"] for step in steps if step["type"] == "tool.call"}
        calls = [
            *(call for own in self._sessions.effects for call in own),
            *(call for look in self._known.looks for call in look.calls if call),
        ]
        made = [call for call in calls if call.name in used]
        compared = {call.name for call in made if is_told_by_output(call)}
        specs = [
            msgspec.to_builtins(_overwriting(spec, made))
            # What it prints as errors is compared as well.
            | ({"exit_codes": [0]} if spec.name in compared else {})
            for spec in specs_of(made).values()
        ]
        if FILE_THERE in used:
            specs.append({"name": FILE_THERE, "effect": "read"})
        return specs

    def _input_schema(self, steps: Sequence[Json]) -> Json:
        inputs, count = self._known.inputs, self._sessions.size
        rows = [{name: values[n] for name, values in inputs.items()} for n in range(count)]
        schema = Inputs(words_in(steps), unconfirmed(steps)).schema(rows)
        schema.setdefault("properties", {})
        for name, one in schema["properties"].items():
            if one["type"] == "string" and not limits_text(one):
                one.update(_look(inputs[name]))
        return {**schema, "additionalProperties": False}


def _around(texts: list[str], calls: list[TracedCall]) -> tuple[list[str], list[str]]:
    """Return the line above and the line below what is replaced, if all sessions had it.

    A patch has such lines too: they say that the place is the one that was meant.
    """
    found: list[list[str]] = [[], []]
    rows = [
        text.partition(call.args["old_string"]) for text, call in zip(texts, calls, strict=True)
    ]
    above = {before.removesuffix("\n").rpartition("\n")[2] for before, _, _ in rows}
    below = {after.removeprefix("\n").partition("\n")[0] for _, _, after in rows}
    if len(above) == 1 and TELLING.search(line := above.pop()):
        found[0].append(f"{line}\n")
    if len(below) == 1 and TELLING.search(line := below.pop()):
        is_ended = all(call.args["old_string"].endswith("\n") for call in calls)
        found[1].append(line if is_ended else f"\n{line}")
    return found[0], found[1]


def _changed(calls: Sequence[TracedCall]) -> list[str]:
    return [str(call.args["file_path"]) for call in calls if "file_path" in call.args]


def _relations(values: Sequence[str], others: Sequence[str]) -> Iterator[str]:
    """Yield how values were always made of others: of a plain form, and the same texts around."""
    for form in (VALUE, *FORMS):
        made = [(applied(form, one) if form in FORMS else one) or "\0" for one in others]
        before, found, after = values[0].partition(made[0])
        pairs = zip(values, made, strict=True)
        if found and all(value == f"{before}{one}{after}" for value, one in pairs):
            sides = (literal(before) if before else "", form, literal(after) if after else "")
            yield " ~ ".join(filter(None, sides))


def _look(values: Sequence[str]) -> Json:
    """Return that a value is one word as it was, and on one line if it always was."""
    pattern = look_of(values) if all(map(is_code, values)) else None
    if pattern is None and all(one.split() == [one] for one in values):
        pattern = r"^\S+$"
    if pattern is None and not any("\n" in one for one in values):
        pattern = r"^[^\n\r]+$"
    return {} if pattern is None else {"pattern": pattern}


def _overwriting(spec: Any, calls: Sequence[TracedCall]) -> Any:
    """Return a declaration that may overwrite files if sessions did: two of them made the same."""
    made = [path for call in calls if call.name == spec.name for path in {*call.creates}]
    is_new = bool(made) and any(made.count(path) == 1 for path in made)
    return spec if is_new or not spec.only_new else msgspec.structs.replace(spec, only_new=False)
