"""Candidates: the steps that find an id by what inputs say about its record.

Every candidate of the list is read, at most `MOST_READ` of them, and the only one that is as
described is taken: none or two hand over. A caller who has the id may give it instead; then a
description that is given too must fit its record.
"""

import re
from collections.abc import Collection, Sequence

from em.compiler.choice import fixed_fields
from em.compiler.contents import CANDIDATE, SHOWN, Condition, Contents, Find
from em.compiler.example import Role
from em.compiler.facts import Inputs, described_by
from em.compiler.places import ELEMENT, KEY, Place, at, is_scalar, last_name
from em.compiler.steps import Writer, hole, read_name
from em.compiler.term import Result, Term, field_text, literal, names_in, path_text, singular
from em.values.canonical import Json, same

MOST_READ = 25
"""Candidates that are read one by one before choosing; more hand over."""
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


class Candidates:
    """Writes how the ids of a routine are found."""

    def __init__(self, writer: Writer, contents: Contents) -> None:
        self._writer, self._contents = writer, contents
        self._written: list[Find] = []

    def write(self) -> None:
        """Write the steps that find the ids, before everything that uses them."""
        writer, waiting = self._writer, [*self._contents.finds]
        writer.hidden |= {(find.name,) for find in waiting}
        while ready := next((one for one in waiting if self._is_known(one)), None):
            self._write(ready)
            waiting.remove(ready)
            self._written.append(ready)
            writer.reveal((ready.name,))
        for find in waiting:
            writer.reveal((find.name,))

    def _is_known(self, find: Find) -> bool:
        """Return whether the list can be read, and what describes its elements is there."""
        inputs = [
            place for place in self._writer.hidden for one in find.conditions if one.input == place
        ]
        if inputs or self._writer.result(find.home.role) is None:
            return False
        return all(self._other(find, name) is not None for name in find.others)

    def _other(self, find: Find, name: str) -> Term | None:
        """Return where another argument of the read comes from that shows a candidate."""
        role = self._role(find)
        return None if role is None else self._writer.argument_of(role, name)

    def _role(self, find: Find) -> Role | None:
        """Return what the read of the record that was found is for."""
        shown = find.shown
        if shown is None:
            return None
        return next(
            (
                role
                for role in self._writer.space.roles
                if role.tool == shown.tool and dict(role.sources)[shown.argument] == (find.name,)
            ),
            None,
        )

    def _write(self, find: Find) -> None:
        writer, home = self._writer, find.home
        base = field_text(writer.text(Result(home.role)), names_in(home.place[: home.cut]))
        missing = f"not given({find.name})"
        if find.shown is None:
            rows = self._conditions(find)
            if home.rest == (KEY,):
                text = _selection("only_key", base, rows)
            else:
                text = field_text(_selection("only", base, rows), names_in(home.rest))
        else:
            text = self._write_reads(find, base, missing)
        held = f"{len(find.sightings)}/{len(writer.examples)}"
        step = {"type": "let", "value": hole(text), "save_as": find.name, "when": missing}
        writer.top.append({**step, "held": held})

    def _write_reads(self, find: Find, base: str, missing: str) -> str:
        """Write the reads of all candidates; return the id of the one that fits."""
        writer, shown, rest = self._writer, find.shown, find.home.rest
        assert shown is not None
        noun = read_name(shown.tool)
        candidate, record = writer.fresh("candidate"), writer.fresh(f"{noun}_read")
        each = writer.fresh(f"each_{noun}")
        own = {field[1:]: value for field, value in find.state if field[0] == CANDIDATE}
        if own:
            rows = [(path_text(field), literal(value)) for field, value in own.items()]
            base = _selection("where", base, rows)
        if rest == (KEY,):
            base, rest = f'every({base}, "@")', ()
        chosen = field_text(candidate, names_in(rest))
        args = {shown.argument: hole(chosen)}
        for name in find.others:
            term = self._other(find, name)
            assert term is not None
            args[name] = writer.value(term, name)
        read = {"type": "tool.call", "tool": shown.tool, "args": args, "save_as": record}
        writer.top.append(
            {
                "type": "for_each",
                "over": {candidate: base},
                "max": MOST_READ,
                "when": missing,
                "steps": [read],
                "save_as": each,
            }
        )
        names = {CANDIDATE: candidate, SHOWN: record}
        rows = [
            *self._conditions(find, CANDIDATE, record=names[CANDIDATE], is_stated=not own),
            *self._conditions(find, SHOWN, record=names[SHOWN]),
        ]
        return f"{_selection('only', each, rows)}.{chosen}"

    def _conditions(
        self, find: Find, part: str = "", *, record: str = "", is_stated: bool = True
    ) -> list[tuple[str, str]]:
        """Return what a part of a candidate must be like, by paths in a record of this name."""
        cut, outer = (1, (record,) if record else ()) if part else (0, ())
        rows = [(one.field, self._wanted(find, one)) for one in find.conditions]
        rows += [(field, literal(value)) for field, value in find.state if is_stated]
        return [
            (path_text((*outer, *field[cut:])), text)
            for field, text in rows
            if field[:cut] == ((part,) if part else ())
        ]

    def _wanted(self, find: Find, condition: Condition) -> str:
        text = self._writer.input_text(condition.input)
        found = [at(one.example.inputs, condition.input) for one in find.sightings]
        is_plain = ELEMENT not in condition.field and all(map(is_scalar, found))
        return text if is_plain else f"holding({text})"

    # ---- checks of the record that was found, or whose id was given

    def check(self) -> None:
        """Write that what was found is as described and in a known state, also by a given id."""
        for find in self._written:
            record = self._write_element(find)
            if find.shown is not None:
                role = self._role(find)
                step = None if role is None else self._writer.read_steps.get(role)
                record = None if step is None else str(step["save_as"])
            if record is not None:
                self._check_record(find, record)

    def _check_record(self, find: Find, record: str) -> None:
        """Write that the record is as described."""
        rows = self._conditions(find, "" if find.shown is None else SHOWN)
        if rows:
            step: Json = {"type": "assert", "check": _selection("where", f"[{record}]", rows)}
            if find.described:
                step["when"] = self._writer.given_text(find.described)
            self._writer.add_check(step, len(find.sightings))
        self._check_parts(find, record)

    def _write_element(self, find: Find) -> str | None:
        """Write the element of the list that has the id; its words must be as they were."""
        writer, home = self._writer, find.home
        cut = () if find.shown is None else (CANDIDATE,)
        taken = [at(one.taken, cut) for one in find.sightings]
        fixed = {
            str(field[0]): {"const": value}
            for field, value in fixed_fields(taken).items()
            if not find.says((*cut, *field))
        }
        if find.shown is not None and not fixed:
            return None
        base = field_text(writer.text(Result(home.role)), names_in(home.place[: home.cut]))
        text = f"{base}[{find.name}]"
        if home.rest != (KEY,):
            text = _selection("only", base, [(path_text(home.rest), find.name)])
        name = singular(last_name(home.place[: home.cut]) or read_name(home.role.tool))
        step = {"type": "let", "value": hole(text), "save_as": writer.fresh(f"{name}_listed")}
        if fixed:
            held = f"{len(taken)}/{len(writer.examples)}"
            step |= {"expect": {"required": [*fixed], "properties": fixed}, "held": held}
        writer.top.append(step)
        return str(step["save_as"])

    def _check_parts(self, find: Find, record: str) -> None:
        """Write that an element by which the record was found is in the state that it always had.

        The object that a loan was found by must not have been recalled.
        """
        outer: Place = () if find.shown is None else (SHOWN,)
        for one in find.conditions:
            if ELEMENT not in one.field or (outer and one.field[0] != SHOWN):
                continue
            cut = one.field.index(ELEMENT)
            place, inner = one.field[len(outer) : cut], one.field[cut + 1 :]
            chosen = []
            for each in find.sightings:
                wanted = at(each.example.inputs, one.input)
                held = at(each.taken, (*outer, *place))
                chosen += [element for element in held if same(at(element, inner), wanted)]
            fixed = {f: value for f, value in fixed_fields(chosen).items() if f != inner}
            if not inner or not fixed:
                continue
            text = field_text(record, names_in(place))
            rows = [(path_text(inner), self._writer.input_text(one.input))]
            properties = {str(field[0]): {"const": value} for field, value in fixed.items()}
            items = {"required": [*properties], "properties": properties}
            self._writer.top.append(
                {
                    "type": "let",
                    "value": hole(_selection("where", text, rows)),
                    "save_as": self._writer.fresh(last_name(place) or "parts"),
                    "expect": {"type": "array", "minItems": 1, "items": items},
                    "held": f"{len(find.sightings)}/{len(self._writer.examples)}",
                }
            )

    # ---- inputs

    def inputs(self) -> list[Json]:
        """Return the inputs of the examples without what is found, and what it is found by."""
        names = {find.name for find in self._written}
        return [
            {name: one for name, one in example.inputs.items() if name not in names}
            for example in self._writer.examples
        ]

    def add_to(self, schema: Json, used: Collection[str]) -> None:
        """Add the ids and the descriptions to the schema of inputs: one of both must be given."""
        ways = []
        for find in self._written:
            properties = schema["properties"]
            properties[find.name] = Inputs(used).schema(find.values, (find.name,))
            names = list(dict.fromkeys(str(place[0]) for place in find.described))
            for name in names:
                values = [one[name] for one in self._contents.given if name in one]
                properties[name] = described_by(values, (name,))
            if names:
                ways.append({"anyOf": [{"required": [find.name]}, {"required": names}]})
        if ways:
            schema["allOf"] = [*schema.get("allOf", ()), *ways]


def _selection(function: str, base: str, rows: Sequence[tuple[str, str]]) -> str:
    """Return a call that selects by paths; two conditions on one path are two selections."""
    first: dict[str, str] = {}
    rest: list[tuple[str, str]] = []
    for path, text in rows:
        others = {path, *first} - {""}
        is_bare = "" in {path, *first}
        if path in first or (is_bare and not all(map(_NAME.fullmatch, others))):
            rest.append((path, text))
        else:
            first[path] = text
    if rest:
        base = _selection("where", base, rest)
    whole = [first.pop("")] if "" in first else []
    named = [f"{path}={text}" for path, text in first.items() if _NAME.fullmatch(path)]
    other = [
        f"{literal(path)}: {text}" for path, text in first.items() if not _NAME.fullmatch(path)
    ]
    mapping = ["{" + ", ".join(other) + "}"] if other else []
    return f"{function}({', '.join([base, *whole, *mapping, *named])})"
