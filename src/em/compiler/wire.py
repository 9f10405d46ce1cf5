"""Wiring: explains where each argument came from, as an expression for the next run."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from em.compiler.calls import Names, identifier
from em.redaction.redactor import MARKER
from em.values.canonical import Json, identical, same
from em.values.leaves import (
    Path,
    Scalar,
    Segment,
    is_informative,
    is_telling,
    items_of,
    leaves,
    mentioned_in,
)

NUMBER = re.compile(r"(?<![\w.,-])\d+(?:\.\d+)?(?![\w]|[.,]\d)")
"""Matches numbers that are words of their own in a text."""


def cut(
    pieces: list[tuple[str, bool]], content: str, expression: str
) -> tuple[list[tuple[str, bool]], bool]:
    """Replace a content by an expression; return the pieces, and whether the content occurred."""
    cut: list[tuple[str, bool]] = []
    for text, is_expression in pieces:
        if is_expression or content not in text:
            cut.append((text, is_expression))
            continue
        for number, part in enumerate(around(content, text)):
            cut += [(expression, True)] if number else []
            cut += [(part, False)] if part else []
    return cut, len(cut) != len(pieces)


def around(content: str, text: str) -> list[str]:
    """Split a text at a content; a number counts only as a word of its own."""
    if not NUMBER.fullmatch(content):
        return text.split(content)
    parts, done = [], 0
    for found in NUMBER.finditer(text):
        if found.group() == content:
            parts.append(text[done : found.start()])
            done = found.end()
    return [*parts, text[done:]]


def plain_path(path: Path) -> str:
    """Return a path as shown to people."""
    return ".".join(str(part.key) for part in path)


def is_text(value: Any) -> bool:
    """Return whether a value is a text that is specific enough to search for."""
    return isinstance(value, str) and is_informative(value)


def record_with(
    result: Any, recorded: Json, constants: Sequence[str], at_least: int
) -> tuple[Path, Mapping[str, Any]] | None:
    """Return the part of a result that shares the most names and values with these arguments."""
    best: tuple[int, Path, Mapping[str, Any]] | None = None
    todo: list[tuple[Path, Any]] = [((), result)]
    while todo:
        path, value = todo.pop()
        if not isinstance(value, dict):
            continue
        hits = sum(
            key in value and equal(value[key], item)
            for key, item in recorded.items()
            if not isinstance(item, dict | list)
        )
        if hits >= at_least and any(key in value for key in constants) and hits > (best or (0,))[0]:
            best = (hits, path, value)
        todo += [((*path, Segment(key, False, value)), item) for key, item in value.items()]
    return None if best is None else (best[1], best[2])


def is_wired(value: Any) -> bool:
    """Return whether a value is an expression, or a text that holds one."""
    return isinstance(value, str) and "{{" in value


def equal(found: Any, value: Any) -> bool:
    """Compare two values; a number equals the same number as a text."""
    if isinstance(found, bool) or isinstance(value, bool) or found is None or value is None:
        return found is value
    if type(found) is type(value) or not isinstance(found, str | int | float):
        return bool(found == value)
    return str(found).strip() == str(value).strip()


def reference(source: str, value: Any, found: Any) -> str:
    """Return a reference, converted if the trace has a number as a text or the reverse."""
    if isinstance(value, str) and not isinstance(found, str):
        source = f"str({source})"
    elif isinstance(found, str) and isinstance(value, int | float):
        source = f"{'int' if isinstance(value, int) else 'float'}({source})"
    return f"{{{{ {source} }}}}"


def inside(expression: str) -> str:
    """Return the expression between the braces."""
    return expression.removeprefix("{{ ").removesuffix(" }}")


def plain_segment(part: Segment) -> str:
    """Return one step of a path as expressions write it."""
    key = part.key
    if part.in_collection and isinstance(part.of, dict):
        key = list(part.of)[int(key)]
    if isinstance(key, int):
        return f"[{key}]"
    return f".{key}" if key.isidentifier() else f"[{msgspec.json.encode(key).decode()}]"


def literal(value: Any) -> Any:
    """Return a constant, quoted if it would read as an expression."""
    if isinstance(value, str) and ("{{" in value or "{%" in value or "{#" in value):
        return "{{ " + msgspec.json.encode(value).decode() + " }}"
    return value


How = Literal[
    "mission", "said", "result", "key", "only", "match", "index", "parts", "secret", "constant"
]
_ORDER: tuple[How, ...] = ("mission", "said", "result", "key", "only", "match", "index", "constant")


class Wire(NamedTuple):
    """One leaf: its value in the routine, how it was explained, and the call it came from."""

    value: Any
    how: How
    source: int | None = None
    note: str = ""


class Explained(msgspec.Struct, frozen=True):
    """Where one argument of one call came from, for `--explain`."""

    call: int
    place: str
    recorded: Any
    wired: Any
    how: How
    note: str


OUTPUT = "output"
"""The place of a routine's return value."""

_TOKEN = re.compile(r"[#\w@.+-]*\d[\w@+-]*")
"""Matches numbers, ids and addresses in a text."""


class _Found(NamedTuple):
    call: int
    path: Path
    value: Scalar


class Wiring:
    """Wires values to the mission, to what users wrote, and to earlier results."""

    def __init__(self, mission: Json, names: Names) -> None:
        self._names = names
        self.inputs: Json = {}
        self._input_names: dict[str, str] = {}
        self._mission = [(path, value) for path, value in leaves(mission)]
        self._mission_names = {key: names.free(identifier(key)) for key in mission}
        self._mission_values = mission
        self._found: list[_Found] = []
        self._results: dict[int, tuple[str, Any]] = {}
        self._computed: set[int] = set()
        self.explained: list[Explained] = []
        self.secrets: dict[str, str] = {}
        """The name of each secret, by its marker in the trace."""

    def add_result(self, call: int, name: str, result: Any, *, computed: bool = False) -> None:
        """Let later values come from this call's result.

        computed: a function of the agent computed it, so even a small value of it was meant.
        """
        self._results[call] = (name, result)
        if computed:
            self._computed.add(call)
        self._found += [_Found(call, path, value) for path, value in leaves(result)]

    def wire(self, value: Any, said: str, call: int, place: str) -> tuple[Any, set[int]]:
        """Wire the leaves of a value; return it, and the calls that they came from."""
        whole = self._whole(value)
        if whole is not None:
            self._explain(call, place, value, whole)
            return whole.value, {whole.source} if whole.source is not None else set()
        if isinstance(value, dict):
            parts = {
                key: self.wire(item, said, call, f"{place}.{key}") for key, item in value.items()
            }
            wired: Any = {key: part for key, (part, _) in parts.items()}
            used = {source for _, sources in parts.values() for source in sources}
            return self._same_record(value, wired, used, call, place), used
        if isinstance(value, list):
            items = [self.wire(item, said, call, f"{place}[{n}]") for n, item in enumerate(value)]
            return [part for part, _ in items], {s for _, sources in items for s in sources}
        name = place.rpartition(".")[2].partition("[")[0]
        if isinstance(value, str) and MARKER.search(value):
            # A redacted value of a result is fetched again by the run. Other secrets come from the
            # user, and are filled into calls only, never into prompts or outputs.
            secret = self._from_secrets if place.startswith("args") else _as_it_is
            leaf = self._from_results(value, said, name) or secret(value)
        else:
            leaf = self._leaf(value, said, name)
        if leaf.how == "constant" and place.startswith(OUTPUT):
            # A constant in an output would repeat this run's answer on the next run.
            leaf = self._by_key(value, name) or leaf
        self._explain(call, place, value, leaf)
        return leaf.value, {leaf.source} if leaf.source is not None else set()

    def _whole(self, value: Any) -> Wire | None:
        """Explain a structure that equals the whole result of a call."""
        if not isinstance(value, dict | list) or not value:
            return None
        for call, (name, result) in reversed(self._results.items()):
            if identical(result, value):
                return Wire(f"{{{{ {name} }}}}", "result", call)
        return None

    def _leaf(self, value: Scalar, said: str, name: str) -> Wire:
        mission = self._from_mission(value, name)
        if mission is not None:
            return mission
        if not is_informative(value):
            # Short words count as inputs only if written like a name or a code: Ana, TX, not "in".
            named = isinstance(value, str) and value[:1].isupper()
            if named and mentioned_in(value, said, exactly=True):
                return self._from_said(value, name)
            return self._from_computed(value) or self._from_one_place(value, said, name)
        if mentioned_in(value, said):
            return self._from_said(value, name)
        found = self._from_results(value, said, name)
        if found is not None:
            return found
        parts = self._from_parts(value, said)
        return parts or Wire(literal(value), "constant")

    def _from_secrets(self, value: str) -> Wire:
        """Wire a text that contains markers of secrets."""
        parts: list[str] = []
        done = 0
        for found in MARKER.finditer(value):
            text = found.group()
            if text not in self.secrets:
                self.secrets[text] = self._secret_name(text)
            before = value[done : found.start()]
            parts += [literal(before) if before else "", f"{{{{ {self.secrets[text]} }}}}"]
            done = found.end()
        return Wire("".join([*parts, literal(value[done:])]), "secret")

    def _secret_name(self, text: str) -> str:
        for key, stated in self._mission_values.items():
            if stated == text:
                return self._mission_names[key]
        return self._names.free(identifier(text.removeprefix("[redacted:").removesuffix("]")))

    def _from_computed(self, value: Scalar) -> Wire | None:
        """Explain a small value that equals the whole result of the agent's own function."""
        if not value or isinstance(value, bool) or value in (1, -1):
            return None
        for call in sorted(self._computed, reverse=True):
            name, result = self._results[call]
            if identical(result, value):
                return Wire(f"{{{{ {name} }}}}", "result", call)
        return None

    def _from_one_place(self, value: Scalar, said: str, name: str) -> Wire:
        """Explain an unspecific value that occurs in one place only."""
        constant = Wire(literal(value), "constant")
        if not is_telling(value):
            return constant
        if mentioned_in(value, said, exactly=True):
            return self._from_said(value, name)
        stated = [found for found in self._mission if found[0] and equal(found[1], value)]
        given = [found for found in self._found if equal(found.value, value)]
        if len(stated) == 1 and not given:
            path, known = stated[0]
            return Wire(self._use_mission(path, value, known), "mission")
        if not given:
            return constant
        wire = self._path_wire(given[-1], value, said)
        # The same field of a record that was read twice counts as one place.
        if stated or wire.how == "index" or len({_last_key(found) for found in given}) > 1:
            # Keep the call, since its result may be what was meant.
            note = f"{value!r} may be {wire.value}; it stays a constant"
            return constant._replace(note=note, source=wire.source)
        note = f"matched by value only: {value!r} occurs nowhere else"
        return wire._replace(note=wire.note or ("" if _last_key(given[-1]) == name else note))

    def _by_key(self, value: Scalar, name: str) -> Wire | None:
        """Explain a value by the newest result that has it under the same name."""
        for found in reversed(self._found):
            named = found.path and found.path[-1].key == name
            plain = not any(part.in_collection for part in found.path)
            if named and plain and equal(found.value, value):
                return self._path_wire(found, value, "")
        return None

    def _from_mission(self, value: Scalar, name: str) -> Wire | None:
        by_name = self._mission_values.get(name)
        if by_name is not None and not isinstance(by_name, dict | list) and equal(by_name, value):
            named: Path = (Segment(name, False, None),)
            return Wire(self._use_mission(named, value, by_name), "mission")
        if not is_informative(value):
            return None
        stated = [found for found in self._mission if found[0] and equal(found[1], value)]
        if not stated:
            return None
        also = [f"input {plain_path(path)}" for path, _ in stated[1:]]
        also += [
            inside(self._path_wire(found, value, "").value)
            for found in self._found
            if equal(found.value, value) and _last_key(found) == name
        ]
        note = f"ambiguous: it may also be {also[0]}" if also else ""
        path, known = stated[0]
        return Wire(self._use_mission(path, value, known), "mission", note=note)

    def _use_mission(self, path: Path, value: Scalar, stated: Scalar) -> str:
        key = str(path[0].key)
        self.inputs[self._mission_names[key]] = self._mission_values[key]
        source = self._mission_names[key] + "".join(plain_segment(part) for part in path[1:])
        return reference(source, value, stated)

    def _from_said(self, value: Scalar, name: str) -> Wire:
        text = str(value)
        if text not in self._input_names:
            free = self._names.free(identifier(name or "value"))
            self._input_names[text] = free
            self.inputs[free] = value
        own = self._input_names[text]
        return Wire(reference(own, value, self.inputs[own]), "said")

    def _from_results(self, value: Scalar, said: str, name: str) -> Wire | None:
        candidates = [found for found in self._found if equal(found.value, value)]
        best: tuple[tuple[int, int, int, int], Wire] | None = None
        for found in candidates:
            wire = self._path_wire(found, value, said)
            last = found.path[-1].key if found.path else ""
            rank = (_ORDER.index(wire.how), int(last != name), len(found.path), -found.call)
            if best is None or rank < best[0]:
                best = (rank, wire)
        if best is None:
            return None
        wire = best[1]
        others = {_last_key(found) for found in candidates} - {name}
        if not wire.note and len(others) > 1 and name not in map(_last_key, candidates):
            wire = wire._replace(
                note=f"ambiguous: it may be any of {', '.join(sorted(map(str, others)))}"
            )
        return wire

    def _path_wire(self, found: _Found, value: Scalar, said: str) -> Wire:
        source, _ = self._results[found.call]
        how: How = "key" if found.path else "result"
        note = ""
        for part in found.path:
            if not part.in_collection:
                source += plain_segment(part)
                continue
            step, chosen, why = self._choose(source, part, said)
            source = step
            if _ORDER.index(chosen) > _ORDER.index(how):
                how = chosen
            note = note or why
        return Wire(reference(source, value, found.value), how, found.call, note)

    def _choose(self, source: str, part: Segment, said: str) -> tuple[str, How, str]:
        """Explain how an item was chosen: as the only one, by a field, or else by its position."""
        items = items_of(part.of)
        number = int(part.key)
        if len(items) == 1:
            return f"only({source})", "only", ""
        item = items[number]
        if isinstance(item, dict):
            for field, content in item.items():
                if not str(field).isidentifier() or isinstance(content, dict | list):
                    continue
                matching = [i for i in items if isinstance(i, dict) and same(i.get(field), content)]
                known = self._known_input(content, said)
                if known is not None and len(matching) == 1:
                    return f"pick({source}, {field}={known})", "match", ""
        note = f"item {number} of {len(items)} was chosen; nothing in the trace explains why"
        return f"nth({source}, {number})", "index", note

    def _known_input(self, content: Any, said: str) -> str | None:
        """Return the input that has this value; make one if a user wrote the value."""
        if not isinstance(content, str) or not is_informative(content):
            return None
        for name, value in self.inputs.items():
            if same(value, content):
                return name
        for path, stated in self._mission:
            if path and same(stated, content):
                return inside(self._use_mission(path, stated, stated))
        if mentioned_in(content, said):
            self._from_said(content, "chosen")
            return self._input_names[content]
        return None

    def _from_parts(self, value: Scalar, said: str) -> Wire | None:
        """Explain a text that contains known values; the rest of it stays constant."""
        if not isinstance(value, str) or len(value) > 2_000:
            return None
        pieces: list[tuple[str, bool]] = [(value, False)]
        source = None
        known = self._known_in(value, said)
        numbers = set(NUMBER.findall(value))
        for content, expression, call in sorted(known, key=lambda item: -len(item[0])):
            if content != value and (len(content) >= 4 or content in numbers):
                pieces, hit = cut(pieces, content, f"{{{{ {expression} }}}}")
                source = call if hit and call is not None else source
        if len(pieces) == 1:
            return None
        text = "".join(part if is_expression else literal(part) for part, is_expression in pieces)
        return Wire(text, "parts", source)

    def _known_in(self, text: str, said: str) -> list[tuple[str, str, int | None]]:
        """Return the known values that may occur in a text: content, expression, call."""
        for token in set(_TOKEN.findall(text)):
            if is_informative(token) and mentioned_in(token, said):
                self._from_said(token, "mentioned")
        known: list[tuple[str, str, int | None]] = [
            (str(content), name, None)
            for name, content in self.inputs.items()
            if isinstance(content, str | int | float) and is_informative(content)
        ]
        for path, stated in self._mission:
            if path and is_informative(stated) and str(stated) in text:
                expression = inside(self._use_mission(path, stated, stated))
                known.append((str(stated), expression, None))
        for found in self._found:
            simple = not any(part.in_collection for part in found.path)
            if simple and (is_text(found.value) or self._is_lone_number(found, text)):
                wire = self._path_wire(found, found.value, said)
                known.append((str(found.value), inside(wire.value), found.call))
        return known

    def _is_lone_number(self, found: _Found, text: str) -> bool:
        """Return whether a number is a word of the text and the value of just one field."""
        value = found.value
        if isinstance(value, str | bool) or not is_telling(value):
            return False
        if str(value) not in NUMBER.findall(text):
            return False
        return len({_last_key(other) for other in self._found if equal(other.value, value)}) == 1

    def _same_record(
        self, recorded: Json, wired: Json, used: set[int], call: int, place: str
    ) -> Json:
        """Wire unspecific values if their neighbours come from the same record."""
        constants = [
            key
            for key, item in recorded.items()
            if not isinstance(item, dict | list) and not is_wired(wired[key])
        ]
        others = self._results.keys() - used
        for other in (*sorted(used, reverse=True), *sorted(others, reverse=True)):
            name, result = self._results[other]
            record = record_with(result, recorded, constants, 2 if other in used else 3)
            if record is None:
                continue
            path, holder = record
            if any(part.in_collection for part in path):
                continue
            base = name + "".join(plain_segment(part) for part in path)
            for key in constants:
                if key in holder and equal(holder[key], recorded[key]):
                    source = base + plain_segment(Segment(key, False, None))
                    wired[key] = reference(source, recorded[key], holder[key])
                    self._explain(
                        call, f"{place}.{key}", recorded[key], Wire(wired[key], "key", other)
                    )
            used.add(other)
            break
        return wired

    def _explain(self, call: int, place: str, recorded: Any, wire: Wire) -> None:
        self.explained = [old for old in self.explained if (old.call, old.place) != (call, place)]
        self.explained.append(Explained(call, place, recorded, wire.value, wire.how, wire.note))


def _last_key(found: _Found) -> str | int:
    return found.path[-1].key if found.path else ""


def _as_it_is(value: Any) -> Wire:
    return Wire(literal(value), "constant")
