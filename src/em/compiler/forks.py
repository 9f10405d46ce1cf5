"""Forks: writes that only some recordings of a kind made, and the condition on which they did.

The condition is on values that the routine knows before its first write. If nothing separates the
recordings with enough evidence, whether to make the write is an input: a routine that was learnt
from recordings that did different things never does less than they did without being told to.
"""

from collections.abc import Sequence
from typing import Any

from em.compiler.condition import Condition, Search, State
from em.compiler.example import Example, sequence_of
from em.compiler.explanation import FromInput
from em.compiler.places import MISSING, at
from em.compiler.relations import Relations
from em.compiler.space import Slot
from em.compiler.steps import Writer
from em.errors import RoutineError


def same_way(name: str, examples: Sequence[Example]) -> None:
    """Raise an error unless one order has the writes of all recordings."""
    if sequence_of(examples) is None:
        raise different(name, examples)


def different(name: str, examples: Sequence[Example]) -> RoutineError:
    """Return the error for recordings that did different things, where nothing tells why."""
    longest = max(examples, key=lambda one: len(one.kind))
    others = [one for one in examples if one.kind != longest.kind]
    other = max(others, key=lambda one: len({*one.kind} - {*longest.kind}))
    return RoutineError(
        f"the recordings did different things: {longest.kind} and {other.kind}",
        place=name,
        fix="compile recordings of one kind of task at a time",
    )


class Forks:
    """Finds the conditions of the writes that not every recording made, and checks on them."""

    def __init__(self, name: str, writer: Writer, relations: Relations) -> None:
        self._name, self._writer = name, writer
        self._relations = relations
        self._asked: dict[str, tuple[bool, ...]] = {}

    @property
    def asked(self) -> dict[str, tuple[bool, ...]]:
        """The inputs that say whether to make a write, with what each recording did."""
        return self._asked

    def conditions(self) -> dict[int, str]:
        """Return the condition of each write that has one; write the checks that it needs."""
        examples, space = self._writer.examples, self._writer.space
        rounds = [space.rounds(example) for example in examples]
        states = [self._state(example) for example in examples]
        found: dict[int, str] = {}
        known: dict[tuple[bool, ...], str] = {}
        for number, slot in enumerate(space.slots):
            made = tuple(bool(one[number]) for one in rounds)
            if all(made):
                continue
            other = known.get(tuple(not one for one in made))
            if other is not None:
                known.setdefault(made, f"not {other}")
            if made not in known:
                yes = [state for state, is_made in zip(states, made, strict=True) if is_made]
                no = [state for state, is_made in zip(states, made, strict=True) if not is_made]
                condition = Search(yes, no, tool=slot.tool, optional=self._optional(slot)).best()
                known[made] = self._write(slot.tool, condition, made)
            found[number] = known[made]
        return found

    def _optional(self, slot: Slot) -> dict[str, bool]:
        """Return the inputs that are not always given, and whether a write is made with them."""
        places = self._writer.ever - self._writer.always
        used = {
            source.place[:1]
            for leaf in slot.leaves.values()
            for source, one in leaf.explanations.items()
            if isinstance(source, FromInput) and len(one.spots) == len(leaf.spots)
        }
        return {str(one[0]): one in used for one in sorted(places, key=str) if len(one) == 1}

    def _state(self, example: Example) -> State:
        """Return what was known before the first write, under the names that the routine uses."""
        state: dict[str, Any] = {
            str(place[0]): value
            for place in self._writer.always | self._writer.ever
            if len(place) == 1 and (value := at(example.inputs, place)) is not MISSING
        }
        for known in self._relations.known(example):
            if not known.when:
                state[known.name] = known.record
        return state

    def _need_one_way(self) -> None:
        """Raise an error if recordings made different writes, and nothing tells why."""
        examples = self._writer.examples
        if max(len(one.kind) for one in examples) < len(self._writer.space.slots):
            raise different(self._name, examples)

    def _write(self, tool: str, condition: Condition | None, made: tuple[bool, ...]) -> str:
        """Write what must be known of a condition; return it as an expression."""
        writer, total = self._writer, len(self._writer.examples)
        if condition is None:
            self._need_one_way()
            name = writer.fresh(tool)
            writer.always.add((name,))
            self._asked[name] = made
            return name
        for text in condition.known():
            writer.write_check(text, None, total)
        name = writer.fresh(f"needs_{tool}")
        writer.top.append(
            {"type": "let", "value": "{{ " + condition.text() + " }}", "save_as": name}
        )
        for other in condition.others:
            writer.write_check(f"{name} == ({other.text()})", None, total)
        return name
