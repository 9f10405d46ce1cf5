"""The learner: recordings of one kind of task become a routine with typed inputs.

1. `space` collects, for every value of every write, the explanations that no recording contradicts.
2. `steps` writes them down: reads, chosen elements, checks.
3. `facts` and `relations` add what must be as it was; this module puts the routine together.

One recording is the case without a contradiction.
"""

import json
import keyword
import re
from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from em.compiler.calls import plain_name
from em.compiler.checks import walked
from em.compiler.choice import Choice, stock_fields
from em.compiler.constancy import Constancy
from em.compiler.contents import Candidates, Contents, contents_of
from em.compiler.evidence import CONSTANTS_SHOWN, Caution
from em.compiler.example import APPROVAL, Example, Write
from em.compiler.facts import Inputs, Records, content, or_null
from em.compiler.forks import Forks, same_way
from em.compiler.goals import goal_checks
from em.compiler.places import (
    ELEMENT,
    MISSING,
    Key,
    Place,
    at,
    empty_in,
    is_code,
    is_scalar,
    key_of,
    walk,
)
from em.compiler.relations import Relations
from em.compiler.repairs import Repairs, is_repair
from em.compiler.space import Slot, Space
from em.compiler.steps import Block, Promoted, Writer, hole, quoted
from em.compiler.term import (
    Term,
    Text,
    Value,
    Written,
    every_term,
    field_text,
    literal,
    paths_in,
)
from em.errors import RoutineError
from em.runner.expressions.language import HOLDS
from em.values.canonical import Json, same
from em.values.leaves import texts


class Learnt(NamedTuple):
    """A routine that was learnt, as its YAML holds it, and what a person should look at.

    constants: arguments that are always the same. asked: inputs that nothing explains. unchecked:
    numbers of inputs and records that are not compared, where a person compiled. values: what the
    asked inputs were in the recordings, by recording, MISSING where it had none.
    """

    routine: Json
    constants: list[tuple[str, Any]]
    asked: list[str]
    unchecked: Sequence[str] = ()
    values: Mapping[str, Sequence[Any]] = {}


def learn(name: str, examples: Sequence[Example], *, caution: Caution = CONSTANTS_SHOWN) -> Learnt:
    """Learn a routine from the recordings of one kind of task; raise if they did different things.

    caution: how much must be known. A person sees the one recording, and what was assumed.
    """
    if is_repair(examples):
        repairs = Repairs(name, examples, caution)
        steps = repairs.steps()
        routine = {
            "version": "1",
            "name": name,
            "checks": "hand_over",
            "input_schema": repairs.input_schema(),
            "tools": tools_of(steps),
            "steps": [*with_ids(steps)],
        }
        return Learnt(routine, repairs.constants, [])
    same_way(name, examples)
    contents = contents_of(examples)
    return _Assembly(name, Writer(Space(contents.examples, caution)), contents).learnt()


class _KnownBefore(Container[Key]):
    """The values that were known when a write was made: they are no state after it."""

    def __init__(self, example: Example, write: Write) -> None:
        self._example, self._before = example, write.before
        self._written = {key_of(value) for _, _, value in walk(write.args)}

    def __contains__(self, key: object) -> bool:
        return key in self._written or self._example.was_known(key, self._before)


class _Assembly:
    """Puts a routine together from the steps of a writer."""

    def __init__(self, name: str, writer: Writer, contents: Contents) -> None:
        self._name, self._writer = name, writer
        self._candidates = Candidates(writer, contents)
        self._space = writer.space
        self._different: list[Json] = []
        # The conditions of writes that are not made in any case, by their slots.
        self._when: dict[int, str] = {}
        self._args: list[Json] = []
        # What the writes of loops take.
        self._rounds: list[Any] = []
        # The names of what writes returned, by the identity of their slots.
        self._saved: dict[int, str] = {}

    def learnt(self) -> Learnt:
        """Return the routine."""
        writer, slots = self._writer, self._space.slots
        self._candidates.write()
        terms = [
            {place: writer.argument(number, place, leaf) for place, leaf in slot.leaves.items()}
            for number, slot in enumerate(slots)
        ]
        self._look(bare=False)
        args = [self._arguments(slot, one) for slot, one in zip(slots, terms, strict=True)]
        self._args = args
        output = writer.output()
        returned = None if output is None else self._arguments(self._space.output, output)
        self._candidates.check()
        writer.agree()
        self._look(bare=True)
        relations = self._relations = Relations(writer, args)
        unchanged = Constancy(writer) if writer.caution.by_person else None
        # Without a write nothing can go wrong: what is read is the answer, not a state.
        if slots and unchanged is None:
            relations.write()
        elif slots and unchanged is not None:
            unchanged.relate()
        forks = Forks(self._name, writer, relations)
        self._when = when = forks.conditions()
        writer.limit(when)
        self._ask_where_needed()
        if slots and unchanged is None:
            self._expect()
        writes: list[Json] = []
        for number, slot in enumerate(slots):
            if not slot.is_repeated:
                writes.append(self._write(slot, args[number]))
            elif number == slot.body.start:
                writes.append(self._repeated(slot.body, terms))
            else:
                continue
            if number in when:
                writes[-1]["when"] = when[number]
        ended = self._return(writes, returned)
        steps = [*self._before(), *writes, *self._goals(writes), ended]
        if unchanged is None:
            _shorten(steps)
        elif slots:
            unchanged.expect([*walked(steps)])
        steps = [*self._as_typed([*with_ids(steps)])]
        routine = {
            "version": "1",
            "name": self._name,
            "checks": "hand_over",
            "input_schema": self._input_schema(steps, [*forks.asked]),
            "tools": tools_of(steps),
            "steps": steps,
        }
        asked = [*forks.asked, *(one.name for one in writer.promoted.values())]
        numbers = unchanged.unchecked() if unchanged else ()
        values = {one.name: self._asked_in_turn(one) for one in writer.promoted.values()}
        values |= {name: [*made] for name, made in forks.asked.items()}
        return Learnt(routine, writer.constants, asked, numbers, values)

    def _look(self, *, bare: bool) -> None:
        """Write the reads that recordings made before they acted.

        bare: those that return one value. Other values may be found by it in several ways, so they
        are written last.
        """
        writer = self._writer
        glances = {call.tool for one in writer.examples for call in one.calls if call.is_glance}
        for role in self._space.habits:
            results = [read.result for _, _, read in self._space.reads[role]]
            if results and is_scalar(results[0]) is bare and role.tool not in glances:
                writer.look(role)

    # ---- writes

    def _arguments(self, slot: Slot, terms: dict[Place, Term]) -> Json:
        """Return the arguments of a write; write the steps that they need."""
        args: Json = {}
        for place, term in terms.items():
            if slot.is_repeated:
                self._rounds.append(self._writer.value(term, str(place[-1])))
            elif ELEMENT in place:
                self._put_list(slot, args, place, terms)
            else:
                _put(args, place, self._writer.value(term, str(place[-1])))
        for place, ways in slot.lists.items():
            if ("none", ()) in ways and len(place) == 1:
                args.setdefault(str(place[0]), [])
        for place, value in empty_in(slot.calls[0][0] if slot.calls else {}):
            is_part = any(isinstance(at(args, place[:end]), str) for end in range(1, len(place)))
            is_always = all(at(one, place) == value for one, _ in slot.calls)
            if is_always and not is_part and not slot.is_repeated:
                _put(args, place, value)
        for name, value in slot.calls[0][0].items() if slot.calls else ():
            # Lists of nothing have no value that could be explained.
            is_always = all(same(one.get(name), value) for one, _ in slot.calls)
            if name not in args and is_always and not slot.is_repeated:
                args[name] = value
        return args

    def _write(self, slot: Slot, args: Json) -> Json:
        """Return the step of a write."""
        step: Json = {
            "type": "tool.call",
            "tool": slot.tool,
            "args": args,
            "effect": "write",
            "save_as": self._writer.written_name(slot.tool, slot),
        }
        self._saved[id(slot)] = step["save_as"]
        results = [result for _, result in slot.calls]
        echoed = [self._known_before[id(args)] for args, _ in slot.calls]
        schema = Records(results, results, echoed=echoed).schema()
        if schema and schema != {"type": "null"}:
            step |= {"expect": schema, "held": f"{len(results)}/{len(results)}"}
        return step

    @cached_property
    def _known_before(self) -> dict[int, "_KnownBefore"]:
        """By the identity of its arguments: what was known when a write was made."""
        return {
            id(write.args): _KnownBefore(example, write)
            for example in self._writer.examples
            for write in example.writes
        }

    def _put_list(self, slot: Slot, args: Json, place: Place, terms: dict[Place, Term]) -> None:
        """Put a list that a loop makes into the arguments."""
        cut = place.index(ELEMENT)
        outer = place[:cut]
        inner = (*outer, ELEMENT)
        fields = {one[cut + 1 :]: term for one, term in terms.items() if one[: cut + 1] == inner}
        writer = self._writer
        block = next((found for one in fields.values() if (found := writer.block(one))), None)
        if block is None:
            single = fields.get(())
            entry: Any = {str(one[-1]): writer.value(term) for one, term in fields.items() if one}
            _put(args, outer, [writer.value(single) if single is not None else entry])
            return
        text = self._list_text(block, fields)
        is_always = all(at(call, outer) is not MISSING for call, _ in slot.calls)
        when = "" if is_always else self._given_text(block)
        _put(args, outer, hole(f"{text} if {when} else omitted" if when else text))
        lists = [one for call, _ in slot.calls if isinstance(one := at(call, outer), list)]
        is_one = any(len({*map(key_of, one)}) < len(one) for one in lists)
        if not is_one and self._can_identify(lists):
            self._differ(text, len(lists))

    def _given_text(self, block: Block) -> str:
        """Return the condition that the inputs of a loop are given; empty if they always are."""
        writer = self._writer
        optional = [one for one in block.over if one in writer.ever - writer.always]
        return writer.given_text(optional) if optional else ""

    def _can_identify(self, lists: list[list[Any]]) -> bool:
        """Return whether values that differ may be what the elements of a list are told by."""
        if not self._writer.caution.by_person:
            return True
        return all(is_code(value) for one in lists for value in one)

    def _differ(self, text: str, held: int) -> None:
        """Note that no element of a list may stand in it twice."""
        check = {"type": "assert", "check": f"distinct({text})", "held": f"{held}/{held}"}
        if check not in self._different:
            self._different.append(check)

    def _list_text(self, block: Block, fields: dict[Place, Term]) -> str:
        writer = self._writer
        if () in fields:
            text = writer.text(fields[()])
            for over, name in block.over.items():
                if text == name:
                    return writer.input_text(over)
            return f'every({block.save_as}, "{self._named(block, text)}")'
        texts = {str(place[-1]): writer.text(term) for place, term in fields.items()}
        for over, name in block.over.items():
            keys = [_keys(example, over) for example in writer.examples]
            if all(one == f"{name}.{field}" for field, one in texts.items()) and all(
                one == set(texts) for one in keys
            ):
                return writer.input_text(over)
        inner = ", ".join(f"{json.dumps(field)}: {text}" for field, text in texts.items())
        return f'every({block.save_as}, "{self._named(block, "{" + inner + "}", "entry")}")'

    def _named(self, block: Block, text: str, name: str = "chosen") -> str:
        """Return the path of a value in a round of a loop; name the value if it has no name."""
        if _REFERENCE.fullmatch(text) and text.partition(".")[0] in block.names:
            return text
        for step in block.steps:
            if step.get("value") == hole(text):
                return str(step["save_as"])
        made = self._writer.fresh(name)
        block.steps.append({"type": "let", "value": "{{ " + text + " }}", "save_as": made})
        return made

    def _repeated(self, body: range, terms: list[dict[Place, Term]]) -> Json:
        """Return the loop of writes that are made once for each element of a list."""
        writer, slots = self._writer, self._space.slots
        found = (writer.block(one) for number in body for one in terms[number].values())
        block = next((one for one in found if one is not None), None)
        if block is None:
            raise RoutineError(
                f"{slots[body.start].tool} was called several times, and no input says for what",
                fix="record the task with a typed list as input",
            )
        # Without anything to look up, the elements of the inputs themselves are gone through.
        is_plain = not block.steps
        row = "" if is_plain else writer.fresh(f"{block.save_as.removeprefix('each_')}_row")
        steps = []
        for number in body:
            args: Json = {}
            for place, term in terms[number].items():
                _put(args, place, self._in_row(term, block, row, str(place[-1])))
            steps.append(self._write(slots[number], args))
            self._differ_in_rounds(slots[number], terms[number], block)
        over = {name: writer.input_text(place) for place, name in block.over.items()}
        return {
            "type": "for_each",
            "over": over if is_plain else {row: block.save_as},
            "steps": steps,
            "save_as": writer.fresh("all_done"),
        }

    def _in_row(self, term: Term, block: Block, row: str, hint: str) -> Any:
        """Return a value in the loop of the writes, where what was looked up is part of a row."""
        writer = self._writer
        if not row or writer.block(term) is None:
            return writer.value(term, hint)
        if isinstance(term, Text):
            parts = (
                quoted(json.loads(part.json))
                if isinstance(part, Value)
                else str(self._in_row(part, block, row, hint))
                for part in term.parts
            )
            return "".join(parts)
        if any(isinstance(one, Written) for one in every_term(term)):
            return writer.value(term, hint)
        return hole(f"{row}.{self._named(block, writer.text(term, hint))}")

    def _differ_in_rounds(self, slot: Slot, terms: dict[Place, Term], block: Block) -> None:
        """Note that no round may act on what another one acts on."""
        for place, term in terms.items():
            if self._writer.block(term) is not block or any(
                isinstance(one, Written | Text) for one in every_term(term)
            ):
                continue
            rounds = self._space.rounds_of(slot, place)
            several = [one for one in rounds if len(one) > 1]
            if not self._can_identify(several):
                continue
            if several and not any(len({*map(key_of, one)}) < len(one) for one in several):
                text = self._writer.text(term)
                over = {name: self._writer.input_text(one) for one, name in block.over.items()}
                name, _, path = text.partition(".")
                if text in over:
                    self._differ(over[text], len(several))
                elif name in over and _REFERENCE.fullmatch(text):
                    self._differ(f'every({over[name]}, "{path}")', len(several))
                else:
                    path = self._named(block, text)
                    self._differ(f'every({block.save_as}, "{path}")', len(several))

    # ---- the rest of the routine

    def _expect(self) -> None:
        """Write what reads must return, and what chosen elements must look like.

        A word by which something else is read is a name, not a state.
        """
        args = [step["args"] for step in self._writer.read_steps.values()]
        names = {*_FIELD.findall(json.dumps(args))}
        written = {*_FIELD.findall(json.dumps([self._args, self._rounds]))}
        over = self._looped()
        for role in self._writer.read_steps:
            step = self._writer.step_of(role)
            name = str(step["save_as"])
            rows = self._space.reads[role]
            own = [read.result for _, _, read in rows]
            pool = self._pool.get(role.tool, ())
            reads = [(example, read) for example, _, read in rows]
            held = len({id(example) for example, _ in reads})
            total = len(self._writer.examples)
            is_searched = name in over or self._relations.is_used(name)
            schema = Records(own, pool, reads, is_searched=is_searched).schema()
            if self._is_looked_through(name):
                schema.pop("minItems", None)
            fields = schema.get("properties", {})
            for field in fields:
                if f"{name}.{field}" in names and isinstance(own[0][field], str):
                    fields[field] = {"type": "string"}
            self._look_at(schema, own, name, written)
            step |= {"expect": schema, "held": f"{held}/{total}"}
        for step, choice in self._writer.picks:
            name, schema = str(step["save_as"]), self._chosen_schema(choice)
            fields = schema.get("properties", {})
            told = {*choice.way.conditions, *(atom.field for atom in choice.atoms)}
            for field in [*fields]:
                if (field,) in told or f"{name}.{field}" in names:
                    del fields[field]
            self._look_at(schema, [row.chosen for row in choice.rows], name, written)
            fields |= {str(field[0]): {"exclusiveMinimum": 0} for field in stock_fields(choice)}
            if schema:
                held = len({id(row.spot.example) for row in choice.rows})
                step |= {"expect": schema, "held": f"{held}/{held}"}

    @cached_property
    def _pool(self) -> dict[str, list[Any]]:
        """What all reads of each tool returned, each read once."""
        found: dict[str, dict[Key, Any]] = defaultdict(dict)
        for example in self._space.examples:
            for read in example.reads:
                found[read.tool].setdefault(key_of(read.args), read.result)
        return {tool: [*results.values()] for tool, results in found.items()}

    @cached_property
    def _chosen_from(self) -> set[str]:
        """The lists that one element is chosen from."""
        return paths_in(json.dumps([step["value"] for step, _ in self._writer.picks]))

    def _looped(self) -> dict[str, str]:
        """Return the lists that loops go over, each with the name of its element."""
        blocks = self._writer.blocks
        pairs = (pair for block in blocks for pair in block.over.items())
        return {self._writer.input_text(place): name for place, name in pairs}

    def _look_at(
        self, schema: Json, values: Sequence[Any], text: str, written: Container[str]
    ) -> None:
        """Add what values look like that writes take, and elements that loops go over.

        Each element is a record that is acted on, as if it had been read by itself.
        """
        looped = self._looped().get(text)
        if looped and all(isinstance(value, list) for value in values):
            items = [one for value in values for one in value]
            if items and all(isinstance(one, dict) for one in items):
                schema["items"] = Records(items, items).schema()
                for field, inner in schema["items"]["properties"].items():
                    # Of what a loop writes, the few that were recorded are not all there are.
                    if f"{looped}.{field}" in written and inner.pop("enum", None):
                        inner["type"] = "string"
                self._look_at(schema["items"], items, looped, written)
            return
        if text in self._chosen_from:
            # What the others in a list are does not matter to the one that was chosen.
            schema.pop("items", None)
        if text in written and not schema.keys() & {"const", "enum", "pattern", "properties"}:
            schema |= content(values)
        # What is written of a record inside this one has a look, whatever else is known of it.
        for field in _texts_in_all(values):
            if field_text(text, (field,)) in written:
                schema.setdefault("properties", {}).setdefault(field, {"type": "string"})
        for field, inner in schema.get("properties", {}).items():
            own = [value[field] for value in values if isinstance(value, dict) and field in value]
            self._look_at(inner, own, field_text(text, (field,)), written)

    @staticmethod
    def _chosen_schema(choice: Choice) -> Json:
        """Return what the next chosen element must look like: as a record of a read of its own."""
        rows = [row for row in choice.rows if isinstance(row.chosen, dict)]
        pool = [one for row in rows for one in row.elements]
        reads = [(row.spot.example, row.spot.example.reads[row.listed]) for row in rows]
        return Records([row.chosen for row in rows], pool, reads).schema()

    def _is_looked_through(self, name: str) -> bool:
        """Return whether a list is only looked through for what must not be there."""
        steps = [*self._writer.top, *(one for each in self._writer.blocks for one in each.steps)]
        return any(str(step.get("check", "")).startswith(f"not where({name},") for step in steps)

    def _before(self) -> Iterator[Json]:
        """Yield what comes before the first write: reads and chosen elements, checks, loops."""
        writer = self._writer
        yield from in_order(writer.top)
        limited: dict[str, Json] = {}
        for block in writer.blocks:
            over = {name: writer.input_text(place) for place, name in block.over.items()}
            given = self._given_text(block)
            when = {"when": given} if given else {}
            limited |= dict.fromkeys((block.save_as, *over.values()), when)
            if block.steps:
                steps = [*in_order(block.steps)]
                loop = {"type": "for_each", "over": over, **when, "steps": steps}
                yield {**loop, "save_as": block.save_as}
        for check in self._different:
            names = words_in([check]) & limited.keys()
            yield {**check, **next((limited[one] for one in sorted(names)), {})}

    def _return(self, writes: list[Json], returned: Json | None) -> Json:
        """Return the last step: what recordings ended with, else what came last in any case."""
        if returned is not None and "value" in returned and self._is_found(writes, returned):
            return {"type": "return", "value": returned["value"]}
        made = (*self._writer.read_steps.values(), *writes)
        saved = [step for step in made if "when" not in step]
        last = "{{ " + str(saved[-1]["save_as"]) + " }}" if saved else None
        return {"type": "return", "value": last}

    def _goals(self, writes: Sequence[Json]) -> Iterator[Json]:
        """Yield what recordings looked at in the end, to see that it was done."""
        if len(writes) == len(self._space.slots):
            recorded = [[args for args, _ in slot.calls] for slot in self._space.slots]
            yield from goal_checks(self._writer, writes, recorded)

    def _is_found(self, writes: Sequence[Json], returned: Json) -> bool:
        """Return whether an output says more than what was said on the day of the recording.

        Without a write it is all that a run is for, so it must be made of what is read.
        """
        names = {str(step["save_as"]) for step in self._writer.read_steps.values()}
        names |= {str(step["save_as"]) for step in self._writer.lets}
        used = {
            word
            for text in texts(returned["value"])
            for expression in _EXPRESSION.findall(text)
            for word in _WORD.findall(expression)
        }
        return bool(writes) or bool(used & names)

    def _as_typed(self, steps: Sequence[Json]) -> Iterator[Json]:
        """Yield the steps in which functions and questions are steps of their own types."""
        for step in steps:
            tool = step.get("tool")
            if tool == APPROVAL:
                yield from question(step, self._answers(step))
            elif tool in self._writer.functions:
                said: Json = {key: step[key] for key in ("args", "when", "save_as") if key in step}
                yield {"id": step["id"], "type": "udf.call", "function": tool, **said}
            elif "steps" in step:
                yield {**step, "steps": [*self._as_typed(step["steps"])]}
            else:
                yield step

    def _answers(self, step: Json) -> list[Any]:
        """Return what a person answered to a question in the recordings."""
        (slot,) = (
            slot
            for slot in self._space.slots
            if slot.tool == APPROVAL and self._saved[id(slot)] == step["save_as"]
        )
        return [result["answer"] for _, result in slot.calls]

    def _ask_where_needed(self) -> None:
        """Check that the inputs of a write that has a condition are given if it is made."""
        for made in self._writer.promoted.values():
            if made.slot in self._when:
                check = {"type": "assert", "check": f"given({made.name})"}
                self._writer.top.insert(0, {**check, "when": self._when[made.slot]})

    def _input_schema(self, steps: list[Json], decisions: Sequence[str]) -> Json:
        writer = self._writer
        used = words_in(steps)
        is_open = not writer.caution.by_person
        open_names = unconfirmed(steps) if is_open else ()
        schema = Inputs(
            used, open_names, writer.changes, writer.optional, writer.described(steps)
        ).schema(
            [*{json.dumps(one, sort_keys=True): one for one in self._candidates.inputs()}.values()]
        )
        schema.setdefault("properties", {})
        self._candidates.add_to(schema, used)
        self._keep_unused(schema)
        for name in writer.fixed:
            schema["properties"].pop(name, None)
            if name in schema.get("required", ()):
                schema["required"] = [one for one in schema["required"] if one != name]
        for name, value in writer.defaults.items():
            if name in schema.get("required", ()):
                schema["properties"][name]["default"] = value
                schema["required"] = [one for one in schema["required"] if one != name]
        for made in writer.promoted.values():
            values = self._asked_values(made)
            open_names = {made.name} if is_open else ()
            told = [value for value in values if value is not None] if made.may_be_null else values
            own = Inputs(used, open_names).schema(told, (made.name,))
            schema["properties"][made.name] = or_null(own) if made.may_be_null else own
            if made.slot not in self._when:
                schema["required"] = [*schema.get("required", ()), made.name]
        for name in decisions:
            schema["properties"][name] = {"type": "boolean"}
            schema["required"] = [*schema.get("required", ()), name]
        return {**schema, "additionalProperties": False}

    def _keep_unused(self, schema: Json) -> None:
        """Add the inputs that no step uses: the recording does not show what another value does."""
        inputs = [example.inputs for example in self._writer.examples]
        for name, value in inputs[0].items():
            is_one = all(key_of(one.get(name)) == key_of(value) for one in inputs)
            if name not in schema["properties"] and is_one:
                schema["properties"][name] = {"const": value}

    def _asked_values(self, made: Promoted) -> list[Any]:
        """Return what an input was in the recordings that the routine asks for."""
        return [value for value in self._asked_in_turn(made) if value is not MISSING]

    def _asked_in_turn(self, made: Promoted) -> list[Any]:
        """Return the same by recording; MISSING where it was not needed."""
        if made.part:
            return [made.part] * len(self._space.examples)
        slot = self._space.slots[made.slot]
        rounds = self._space.rounds_of(slot, made.place)
        if made.may_be_null:
            rounds = [[None if value is MISSING else value for value in one] for one in rounds]
        return rounds if slot.is_repeated else [one[0] if one else MISSING for one in rounds]


def _keys(example: Example, over: Place) -> set[str]:
    found = at(example.inputs, over)
    if not isinstance(found, list) or not found or not isinstance(found[0], dict):
        return set()
    return {*found[0]}


def _put(args: Json, place: Place, value: Any) -> None:
    holder = args
    for step in place[:-1]:
        holder = holder.setdefault(str(step), {})
        if not isinstance(holder, dict):
            raise RoutineError(
                f"the argument {step} is a record in one call and something else in another",
                place="traces",
                fix="compile recordings whose calls have arguments of one form",
            )
    holder[str(place[-1])] = value


def in_order(steps: list[Json]) -> Iterator[Json]:
    """Yield each check as soon as all that it names is known."""
    checks = [step for step in steps if step["type"] == "assert"]
    others = [step for step in steps if step["type"] != "assert"]
    names = {str(step["save_as"]) for step in others if "save_as" in step}
    waiting = [(check, words_in([check]) & names) for check in checks]
    known: set[str] = set()
    left = [str(step["save_as"]) for step in others]
    for step in others:
        yield step
        left.remove(str(step["save_as"]))
        if step["save_as"] not in left:
            known.add(str(step["save_as"]))
        ready = [check for check, needed in waiting if needed <= known]
        waiting = [row for row in waiting if not row[1] <= known]
        yield from ready
    yield from (check for check, _ in waiting)


def question(step: Json, answers: Sequence[Any]) -> Iterator[Json]:
    """Yield a question to a person, and the check that the answer is the recorded one.

    step: the question as a call. answers: what was answered in the recordings.
    """
    answer = answers[0]
    if any(not same(one, answer) for one in answers):
        raise RoutineError("a person answered differently in the recordings", place="traces")
    kinds = {bool: "confirm", int: "integer", float: "number", str: "text", type(None): "text"}
    field: Json = {"name": "answer", "type": kinds.get(type(answer), "json")}
    field |= {"required": False} if answer is None else {}
    prompt = {"message": step["args"]["message"], "fields": [field]}
    when = {"when": step["when"]} if "when" in step else {}
    saved = step["save_as"]
    yield {"id": step["id"], "type": "prompt.user", "prompt": prompt, **when, "save_as": saved}
    check = {"check": f"{saved}.answer == {literal(answer)}"}
    held = f"{len(answers)}/{len(answers)}"
    yield {"id": f"{step['id']}_given", "type": "assert", **when, **check, "held": held}


def with_ids(steps: list[Json]) -> Iterator[Json]:
    """Yield the steps with ids that are made from what they save or check."""
    taken: set[str] = set()

    def named(step: Json) -> Json:
        wanted = step.get("id") or _name_of_write(step) or step.get("save_as")
        wanted = wanted or _name_of_check(step)
        number, made = 1, str(wanted)
        while made in taken:
            number += 1
            made = f"{wanted}_{number}"
        taken.add(made)
        inner = {"steps": [named(one) for one in step["steps"]]} if "steps" in step else {}
        return {**step, "id": made, **inner} if "id" in step else {"id": made, **step, **inner}

    return map(named, steps)


def _name_of_write(step: Json) -> str:
    """Name a write after its tool: so a failed run says what was done."""
    is_write = step.get("effect") == "write" and step.get("tool") not in (None, APPROVAL)
    return plain_name(step["tool"]) if is_write else ""


def _name_of_check(step: Json) -> str:
    """Name a check after what it looks at first: `check_order_status`."""
    if step["type"] != "assert":
        return "result"
    paths = (found[0] for found in _PATH.finditer(_QUOTED.sub('""', step["check"])))
    first = next((path for path in paths if not keyword.iskeyword(path)), "")
    return f"check_{first.replace('.', '_')}".rstrip("_")


def tools_of(steps: Sequence[Json]) -> list[Json]:
    """Return the tools that steps call, with their effects."""
    found: dict[str, str] = {}
    for step in walked(steps):
        if step["type"] == "tool.call":
            found[step["tool"]] = step.get("effect", "read")
    return [{"name": name, "effect": effect} for name, effect in found.items()]


def _shorten(steps: Sequence[Json]) -> None:
    """Leave the types of those fields only that the steps use; states stay."""
    used = paths_in(json.dumps([{**step, "expect": None} for step in walked(steps)]))
    for step in walked(steps):
        fields = step.get("expect", {}).get("properties")
        if fields is None:
            continue
        for name in [*fields]:
            if set(fields[name]) == {"type"} and f"{step['save_as']}.{name}" not in used:
                del fields[name]
        if step.get("effect") == "write":
            # It is too late to hand over: only what the next steps rely on must be there.
            step["expect"]["required"] = [*fields]
        if not fields:
            del step["expect"]["properties"]
            step["expect"] = {name: one for name, one in step["expect"].items() if one != []}


_REFERENCE = re.compile(r"[A-Za-z_]\w*(\.\w+)*")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_PATH = re.compile(r"(?<![\w.\"'])[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*(?![\w(\"'])")
_EXPRESSION = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_FIELD = re.compile(r"[A-Za-z_]\w*(?:\.\w+)+")
_WORD = re.compile(r"[A-Za-z_]\w*")


def words_in(steps: Sequence[Json]) -> set[str]:
    """Return the names in the expressions of steps; a constant text may have any words."""
    return {
        word
        for step in walked(steps)
        for field, said in step.items()
        if field != "message"
        for text in _expressions(HOLDS.get(field, "text"), said)
        for word in _WORD.findall(text)
    }


def _expressions(holds: str, said: Any) -> Iterator[str]:
    """Yield the expressions in a field of a step."""
    if holds == "bare":
        yield json.dumps(said)
    for text in texts(said) if holds == "values" else ():
        yield from _EXPRESSION.findall(text)


def unconfirmed(steps: Sequence[Json]) -> set[str]:
    """Return the names that go straight into a write: no read confirms them."""
    writes, others = set(), set()
    for step in walked(steps):
        words = {
            word
            for field in ("args", "value", "over")
            if field in step
            for word in _WORD.findall(json.dumps(step[field]))
        }
        if step.get("effect") == "write":
            writes |= words
        elif step["type"] != "return":
            others |= words
        if step["type"] == "assert" and " in " in step["check"].replace(" not in ", ""):
            others |= {*_WORD.findall(step["check"])}
    return writes - others


def _texts_in_all(values: Sequence[Any]) -> Iterator[str]:
    """Yield the fields that are texts in all values, if these are records."""
    if values and all(isinstance(value, dict) for value in values):
        for field in values[0]:
            if all(isinstance(value.get(field), str) for value in values):
                yield field
