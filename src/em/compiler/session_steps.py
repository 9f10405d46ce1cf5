"""Steps of sessions: what coding sessions did alike, written as a routine of plain steps.

All looks come first, then every check, then the effects, with the test runs that sessions made
between and behind them. A text that is replaced must stand in its file exactly once; what is
written must be as new there as it was in all sessions.
"""

import json
import keyword
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from typing import Any

import msgspec

from em.compiler.alignment import FINE
from em.compiler.calls import TracedCall, identifier, specs_of
from em.compiler.evidence import SHORT_TEXT
from em.compiler.example import Call, Example, Role
from em.compiler.explanation import Explanation, FromText
from em.compiler.facts import Inputs, look_of
from em.compiler.file_changes import EDIT
from em.compiler.forms import FORMS, applied
from em.compiler.learner import Learnt, in_order, unconfirmed, with_ids, words_in
from em.compiler.list_forms import VALUE
from em.compiler.places import Place, is_code
from em.compiler.prompt import inputs_of, is_said
from em.compiler.request_templates import request_templates
from em.compiler.session_space import SessionSpace
from em.compiler.sessions import Look, gone, is_told_by_output, sessions_of, shown_alike
from em.compiler.space import Slot
from em.compiler.steps import Writer, hole
from em.compiler.surroundings import TELLING, Context, shared_start
from em.compiler.term import Found, Given, Result, Term, Text, Value, literal, parts_of
from em.errors import RoutineError
from em.runner.expressions.functions import lists_only, stands_in, stands_once
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
            learnt = _Assembly(name, SessionWriter(SessionSpace(sessions, wide))).learnt()
        except RoutineError:
            pass  # whole words don't explain all
        else:
            if not learnt.asked:
                return learnt
    return _Assembly(name, SessionWriter(SessionSpace(sessions, narrow))).learnt()


class SessionWriter(Writer):
    """Writes the looks and texts of sessions; every text that is found gets a name."""

    def __init__(self, space: SessionSpace) -> None:
        super().__init__(space)
        self.space: SessionSpace = space
        self.new_texts: dict[int, Term] = {}

    def _is_supported(self, one: Explanation) -> bool:
        if isinstance(one.source, FromText) and isinstance(one.spots[0].value, int):
            return True  # a place in a file: what holds in all sessions, and all must agree
        return super()._is_supported(one)

    def _term(
        self, one: Explanation, trail: tuple[Role, ...] = (), *, is_value: bool = True
    ) -> Term | None:
        source = one.source
        if not isinstance(source, FromText):
            return super()._term(one, trail, is_value=is_value)
        if self._args_of(source.role, trail) is None:
            return None
        args: list[Term] = [Value(json.dumps(text)) for text in source.args]
        if source.effect is not None:
            args.append(self.new_texts[source.effect])
        return Found(Result(source.role), source.function, tuple(args))

    def _text(self, term: Term, hint: str) -> str:
        if not isinstance(term, Found):
            return super()._text(term, hint)
        of, *args = (self.text(one) for one in parts_of(term))
        name = self.fresh(_name_of(term, hint))
        value = hole(f"{term.function}({', '.join([of, *args])})")
        self.top.append({"type": "let", "value": value, "save_as": name})
        return name

    def _write_read(self, role: Role, hint: str = "", name: str = "") -> str:
        if role in self.read_steps:
            return str(self.read_steps[role]["save_as"])
        # What the arguments need comes first, so that names are given in the order of use.
        for argument, term in (self._args[role] or {}).items():
            self.value(term, argument)
        look = self.space.looks[role]
        name = super()._write_read(role, name=self.fresh(_look_name(look)))
        shown = [look.text(number) for number in look.made]
        if all(shown) and look.tool != TODAY:
            # Something and nothing are states, and so is how lines end.
            has_returns = any("\r" in str(one) for one in shown)
            schema = {"minLength": 1} if has_returns else {"pattern": r"^[^\r]+$"}
            held = f"{len(shown)}/{self.space.sessions.size}"
            self.read_steps[role] |= {"expect": {"type": "string", **schema}, "held": held}
        return name

    def _promote(self, slot: Slot, number: int, place: Place, *, may_be_null: bool = False) -> Term:
        raise RoutineError(f"nothing explains {place[-1]} of {slot.tool} in all sessions")

    def shown(self, look: Look) -> str:
        """Return the name of what a look shows; "" if it can't be made again."""
        role = Role(look.tool, (), look.which)
        is_known = self.space.is_usable(look) and self._args_of(role, ()) is not None
        return self.text(Result(role)) if is_known else ""

    def check_step(self, look: Look) -> Json | None:
        """Return a command that must succeed as a step; None if few had its values."""
        role = Role(look.tool, (), look.which)
        args = self._args_of(role, ())
        if args is None:
            return None
        call = next(call for call in look.calls if call is not None)
        texts = {name: self.value(term, name) for name, term in args.items()}
        # What only some sessions checked says little about where its values come from.
        for name in args if len(look.made) == self.space.sessions.size else ():
            self._agreed += [(agreed, None) for agreed in self._used[role][name]]
        name = self.fresh(f"{identifier(call.title)}_passed")
        held = f"{len(look.made)}/{self.space.sessions.size}"
        step = {"type": "tool.call", "tool": look.tool, "args": texts, "save_as": name}
        expected = {} if call.result is None else {"expect": {"const": call.result}}
        return {**step, **expected, "held": held}

    def named(self, term: Term, wanted: str) -> str:
        """Return a text as an expression, by a name of its own if it is put together."""
        if not isinstance(term, Text):
            return self.text(term)
        if term not in self._texts:
            value = self.value(term)
            name = self.fresh(wanted)
            self.top.append({"type": "let", "value": value, "save_as": name})
            self._texts[term] = name
        return self._texts[term]


def _look_name(look: Look) -> str:
    """Name what a look shows: people read it in hand-overs."""
    if look.tool == TODAY:
        return "today"
    if look.tool != FILE_TEXT:
        return f"{identifier(look.tool.partition('_')[0])}_output"
    names = {str(call.args["file_path"]).rpartition("/")[2] for call in look.calls if call}
    return f"{identifier(names.pop())}_text" if len(names) == 1 else "file_text"


def _name_of(term: Found, hint: str) -> str:
    """Name a part of a text after the last word before it."""
    if term.function != "between":
        return "line" if term.function == "line_place" else "next_number"
    before = json.loads(term.args[0].json) if isinstance(term.args[0], Value) else ""
    words = [word.strip("_").lower() for word in re.findall(r"[A-Za-z]\w*[A-Za-z]", before)]
    plain = next((word for word in reversed(words) if not keyword.iskeyword(word)), hint or "part")
    return f"{identifier(plain)}_found"


class _Assembly:
    """Puts the routine of sessions together."""

    def __init__(self, name: str, writer: SessionWriter) -> None:
        self._name, self._writer = name, writer
        self._space, self._sessions = writer.space, writer.space.sessions

    def learnt(self) -> Learnt:
        """Return the routine."""
        writer = self._writer
        terms = [self._terms(number, slot) for number, slot in enumerate(self._space.slots)]
        steps = [self._effect(number, args) for number, args in enumerate(terms)]
        checks = [writer.check_step(one.look) for one in self._space.checks]
        for number, args in enumerate(terms):
            self._check_effect(number, args)
        writer.agree()
        self._check_inputs()
        self._check_ends(terms)
        self._check_looks(terms)
        body = [*in_order(writer.top), *self._with_checks(steps, checks), self._return(steps)]
        body = [*with_ids(body)]
        used = {
            name: values for name, values in self._space.inputs.items() if name in words_in(body)
        }
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
        return Learnt(routine, writer.constants, self._space.asked, values=used)

    def _examples(self, used: Mapping[str, Sequence[str]]) -> Iterator[Example]:
        """Yield the sessions with the inputs that they need; what is asked for need not be said."""
        for number, prompt in enumerate(self._sessions.prompts):
            inputs = {
                name: values[number]
                for name, values in used.items()
                if name not in self._space.asked or is_said(values[number], prompt)
            }
            calls = [Call(one.name, one.args) for one in self._sessions.effects[number]]
            yield Example(inputs, calls, request=prompt, name=f"session {number}")

    def _terms(self, number: int, slot: Slot) -> dict[str, Term]:
        writer, found = self._writer, dict[str, Term]()
        places = sorted(slot.leaves, key=lambda place: place == ("insert_line",))
        for place in places:
            found[str(place[0])] = writer.argument(number, place, slot.leaves[place])
            if place == ("new_string",):
                writer.new_texts[number] = found["new_string"]
        return found

    def _effect(self, number: int, terms: Mapping[str, Term]) -> Json:
        writer, tool = self._writer, self._space.slots[number].tool
        args = {name: writer.value(term, name) for name, term in terms.items()}
        if "old_string" in terms:
            args["old_string"] = hole(writer.named(terms["old_string"], "old_text"))
        calls = [own[number] for own in self._sessions.effects]
        name = writer.fresh(f"{identifier(calls[0].title)}_done")
        step = {"type": "tool.call", "tool": tool, "args": args, "effect": "write", "save_as": name}
        if not any(map(is_told_by_output, calls)):
            return step
        return {**step, "expect": {"const": shown_alike(calls)}}

    # ---- checks

    def _check(self, text: str, held: int | None = None) -> None:
        self._writer.write_check(text, None, self._sessions.size if held is None else held)

    def _check_effect(self, number: int, terms: Mapping[str, Term]) -> None:
        """Check that a text stands once, and that what is written is new."""
        look, writer = self._sessions.files[number], self._writer
        if self._space.slots[number].tool == CREATE:
            self._check_new(terms["file_path"])
        if look is None:
            return
        text = writer.shown(look)
        calls = [own[number] for own in self._sessions.effects]
        texts = [look.text(session) or "" for session in range(len(calls))]
        if calls[0].name == EDIT:
            old = writer.named(terms["old_string"], "old_text")
            pairs = zip(texts, (call.args["old_string"] for call in calls), strict=True)
            are_lines = all(stands_once(shown, one, "lines") for shown, one in pairs)
            above, below = self._around(texts, calls) if are_lines else ([], [])
            whole = " ~ ".join([*map(literal, above), old, *map(literal, below)])
            if are_lines:
                self._check(f'stands_once({text}, {whole}, "lines")')
            if above or below or not are_lines:
                self._check(f"stands_once({text}, {old})")
            self._check_gone(text, texts, calls, terms)
        for name in sorted(_inputs_in(terms.get("new_string"))):
            values = self._space.inputs[name]
            if not any(stands_in(shown, one) for one, shown in zip(values, texts, strict=True)):
                self._check(f"not stands_in({text}, {name})")

    def _check_inputs(self) -> None:
        """Check that inputs of which one was always made of the other still agree."""
        inputs = self._space.inputs
        for name, other in permutations(inputs, 2):
            relation = next(_relations(inputs[name], inputs[other]), "")
            if relation and len({*inputs[name]}) > 1:
                self._check(f"{name} == {relation.replace(VALUE, other)}")

    def _check_ends(self, terms: Sequence[Mapping[str, Term]]) -> None:
        """Check that inputs begin and end as all did where texts have words of that as well.

        `src/app/users/` in the path of a new file may come from the path that was given.
        """
        fixed = {
            word
            for args in terms
            for argument, term in args.items()
            if argument != "old_string"
            for text in _constants_in(term)
            for word in FINE.findall(text)
            if len(word) >= SHORT_TEXT
        }
        for name, values in self._space.inputs.items():
            if len({*values}) == 1 or any(one.split() != [one] for one in values):
                continue
            rows = [FINE.findall(one) for one in values]
            start = shared_start(rows)
            end = shared_start([row[::-1] for row in rows])[::-1]
            if not fixed.isdisjoint(start):
                self._check(f"{name}.startswith({literal(''.join(start))})")
            if not fixed.isdisjoint(end):
                self._check(f"{name}.endswith({literal(''.join(end))})")

    def _check_new(self, path: Term) -> None:
        """Check before all effects that a new file is not there yet."""
        writer = self._writer
        writer.top.append(
            {
                "type": "tool.call",
                "tool": FILE_THERE,
                "args": {"file_path": hole(writer.named(path, "path"))},
                "save_as": writer.fresh("is_there"),
                "expect": {"const": False},
                "held": f"{self._sessions.size}/{self._sessions.size}",
            }
        )

    @staticmethod
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

    def _check_gone(
        self, text: str, texts: list[str], calls: list[TracedCall], terms: Mapping[str, Term]
    ) -> None:
        """Check that what goes stands once in its file, if it did in all sessions.

        Nothing shows whether a second one would have been replaced too.
        """
        lost = [gone(call.args["old_string"], call.args["new_string"]) for call in calls]
        is_once = all(stands_once(one, part) for one, part in zip(texts, lost, strict=True))
        old = terms["old_string"]
        parts = [*parts_of(old)] if isinstance(old, Text) else [old]
        for part in parts if is_once else ():
            if not isinstance(part, Value) and self._values_of(part) == lost:
                self._check(f"stands_once({text}, {self._writer.text(part)})")

    def _values_of(self, part: Term) -> list[str]:
        """Return the values that a part of a text had in the sessions."""
        if isinstance(part, Given):
            return [*self._space.inputs[str(part.place[0])]]
        if isinstance(part, Found) and isinstance(part.of, Result) and part.function == "between":
            look = self._space.looks[part.of.role]
            args = [json.loads(one.json) for one in part.args if isinstance(one, Value)]
            shown = [look.text(number) for number in range(self._sessions.size)]
            return [Context(*args[:2]).part_of(one) or "" for one in shown if one is not None]
        return []

    def _check_looks(self, terms: Sequence[Mapping[str, Term]]) -> None:
        """Check what looks of all sessions showed alike: it may be why they acted."""
        paths = [path for args in terms if (path := self._path(args))]
        for look in self._sessions.looks:
            if len(look.made) < self._sessions.size or look.tool in (TODAY, FILE_TEXT):
                continue
            shown = [look.text(number) or "" for number in look.made]
            is_fact = len({*shown}) == 1 and _is_fact(shown[0])
            is_search = bool(paths) and all(
                lists_only(text, *self._changed(number)) for number, text in enumerate(shown)
            )
            text = self._writer.shown(look) if is_fact or is_search else ""
            if text and is_fact:
                self._check(f"{text} == {literal(shown[0])}")
            elif text:
                self._check(f"lists_only({', '.join([text, *paths])})")

    def _path(self, terms: Mapping[str, Term]) -> str:
        return self._writer.named(terms["file_path"], "path") if "file_path" in terms else ""

    def _changed(self, session: int) -> list[str]:
        calls = self._sessions.effects[session]
        return [str(call.args["file_path"]) for call in calls if "file_path" in call.args]

    # ---- the rest of the routine

    def _with_checks(
        self, effects: Sequence[Json], checks: Sequence[Json | None]
    ) -> Iterator[Json]:
        """Yield the effects, and what must succeed between and behind them."""
        for number, step in enumerate(effects):
            yield step
            for one, check in zip(self._space.checks, checks, strict=True):
                if one.after == number + 1 and check is not None:
                    yield check

    def _return(self, effects: Sequence[Json]) -> Json:
        paths = [step["args"]["file_path"] for step in effects if "file_path" in step["args"]]
        last = hole(str(effects[-1]["save_as"])) if effects else None
        value: Any = {"changed": [*dict.fromkeys(paths)]} if paths else last
        return {"type": "return", "value": value}

    def _tools(self, steps: Sequence[Json]) -> list[Json]:
        used = {step["tool"] for step in steps if step["type"] == "tool.call"}
        calls = [
            *(call for own in self._sessions.effects for call in own),
            *(call for look in self._sessions.every_look for call in look.calls if call),
            *(call for one in self._space.checks for call in one.look.calls if call),
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
        inputs = self._space.inputs
        count = self._sessions.size
        rows = [{name: values[n] for name, values in inputs.items()} for n in range(count)]
        schema = Inputs(words_in(steps), unconfirmed(steps)).schema(rows)
        schema.setdefault("properties", {})
        for name, one in schema["properties"].items():
            if one["type"] == "string" and not limits_text(one):
                one.update(_look(inputs[name]))
        return {**schema, "additionalProperties": False}


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


def _constants_in(term: Term) -> Iterator[str]:
    """Yield the constant texts of a text that is written."""
    for one in (term, *parts_of(term)):
        if isinstance(one, Value) and isinstance(text := json.loads(one.json), str):
            yield text


def _inputs_in(term: Term | None) -> set[str]:
    if term is None:
        return set()
    if isinstance(term, Given):
        return {str(term.place[0])}
    return set[str]().union(*(_inputs_in(one) for one in parts_of(term)))


def _is_fact(text: str) -> bool:
    """Return whether an output says nothing, or one thing that is no path."""
    return len(text) <= LONGEST_FACT and "\n" not in text and not text.startswith(("/", "~"))
