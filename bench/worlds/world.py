"""What the worlds share: a small database, tools that record their calls, kinds of task, traps."""

import copy
import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

Facts = dict[str, Any]
Row = dict[str, Any]


class ToolError(Exception):
    """A tool refused a call."""


class HandOver(Exception):
    """A careful agent stops here and asks a person."""


def words(text: str) -> set[str]:
    """Return the words of a text."""
    return set(text.split())


def tables(text: str) -> dict[str, list[str]]:
    """Return the tables listed as "name key-column prefix, ..."."""
    return {line.split()[0]: line.split()[1:] for line in text.split(",")}


@dataclass
class Call:
    """One call of a tool, with its result or its error."""

    tool: str
    args: dict[str, Any]
    effect: str
    result: Any = None
    error: str | None = None


class World:
    """An application in memory. Its tools are the methods named in READS and WRITES.

    `call` is the only door for agents and routines: it records the call and copies what goes in
    and out, so that nobody can change the database except through a write tool. The other methods
    of this class serve the tools and the changes that traps make.
    """

    NAME: ClassVar[str]
    READS: ClassVar[set[str]]
    WRITES: ClassVar[set[str]]
    TABLES: ClassVar[dict[str, list[str]]]  # key column, and prefix of new keys

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.db: dict[str, dict[str, Row]] = {table: {} for table in self.TABLES}

    def call(self, tool: str, **args: Any) -> Any:
        """Call a tool by name and return its result; raise ToolError if it refuses."""
        if tool not in self.READS | self.WRITES:
            raise ToolError(f"unknown tool {tool!r}")
        record = Call(tool, copy.deepcopy(args), "write" if tool in self.WRITES else "read")
        self.calls.append(record)
        method = getattr(self, tool)
        try:
            inspect.signature(method).bind(**args)
            record.result = copy.deepcopy(method(**copy.deepcopy(args)))
        except (ToolError, TypeError) as error:
            record.error = str(error)
            raise ToolError(record.error) from error
        return copy.deepcopy(record.result)

    def stumble(self, tool: str, **args: Any) -> None:
        """Make a call that the tool refuses, as agents do before they know better."""
        try:
            self.call(tool, **args)
        except ToolError:
            return
        raise AssertionError(f"{tool} was expected to refuse {args}")

    def writes(self) -> list[Call]:
        """Return the writes that were carried out, in order."""
        return [call for call in self.calls if call.effect == "write" and call.error is None]

    def add(self, table: str, **values: Any) -> Row:
        """Add a row, with a new key unless the values contain one."""
        column, prefix = self.TABLES[table]
        row = {column: f"{prefix}-{1001 + len(self.db[table])}", **values}
        self.db[table][row[column]] = row
        return row

    def get(self, table: str, key: object) -> Row:
        """Return the row with this key, or refuse the call."""
        if not isinstance(key, str) or key not in self.db[table]:
            raise ToolError(f"{self.TABLES[table][0]} {key!r} not found")
        return self.db[table][key]

    def where(self, table: str, **wanted: Any) -> list[Row]:
        """Return all rows with these values."""
        rows = self.db[table].values()
        return [row for row in rows if all(row.get(k) == v for k, v in wanted.items())]

    def pick(self, table: str, **wanted: Any) -> Row:
        """Return the first row with these values, or refuse the call."""
        rows = self.where(table, **wanted)
        if not rows:
            raise ToolError(f"nothing found in {table} with {wanted}")
        return rows[0]

    def search(self, table: str, column: str, part: object, *shown: str) -> list[Row]:
        """Return the shown columns of all rows whose column contains the text, ignoring case."""
        if not isinstance(part, str) or len(part) < 2:
            raise ToolError(f"{column} needs at least two characters")
        hits = [r for r in self.db[table].values() if part.lower() in str(r[column]).lower()]
        return [{key: row[key] for key in shown if key in row} for row in hits]

    @staticmethod
    def iso(value: object) -> str:
        """Return an ISO date, or refuse the call."""
        if not isinstance(value, str) or not re.fullmatch(r"\d{4}-\d\d-\d\d", value):
            raise ToolError(f"invalid date {value!r}: use YYYY-MM-DD")
        return value


@dataclass(frozen=True)
class Trap:
    """A situation in which a careful agent would not act.

    `twin` is a normal fact of the kind. The trap differs from it in its facts, or in the world
    after `change`.
    """

    kind: str
    name: str
    facts: Facts
    change: Callable[[Any], None] | None
    twin: Facts


@dataclass
class Kind:
    """A kind of task: its inputs by number, how an agent solves it, how people ask for it."""

    name: str
    world: type[World]
    facts: Callable[[int], Facts]
    solve: Callable[[Any, Facts, int], None]
    wordings: tuple[str, str, str, str]
    show: Callable[[Facts], dict[str, str]] = lambda facts: {}
    traps: list[Trap] = field(default_factory=list)

    def request(self, facts: Facts, number: int) -> str:
        """Return the sentence with which a person asks for this task."""
        return self.wordings[number % 4].format(**{**facts, **self.show(facts)})

    def trap(
        self,
        name: str,
        edit: Callable[[Any, Facts], object] | None = None,
        differ: Callable[[Facts], Facts] | None = None,
        where: Callable[[Facts], object] = lambda facts: True,
    ) -> None:
        """Add a trap whose twin is the next test fact that `where` accepts.

        `edit` changes a fresh world, `differ` returns the inputs that differ from the twin. An
        input that it sets to None is left out.
        """
        numbers = range(40 + len(self.traps), 60)
        twin = next(facts for facts in map(self.facts, numbers) if where(facts))
        facts = {**twin, **(differ(twin) if differ else {})}
        facts = {key: value for key, value in facts.items() if value is not None}

        def change(world: Any) -> None:
            if edit:
                edit(world, facts)

        self.traps.append(Trap(self.name, name, facts, change if edit else None, twin))


def need(condition: object, why: str) -> None:
    """Hand over unless the condition holds."""
    if not condition:
        raise HandOver(why)


def only(rows: Iterable[Row], **wanted: Any) -> Row:
    """Return the one row with these values; hand over if there is none or more than one."""
    hits = [row for row in rows if all(row.get(key) == value for key, value in wanted.items())]
    need(len(hits) == 1, f"{len(hits)} records with {wanted}")
    return hits[0]


def amount_of(row: Row, column: str) -> float:
    """Return a number from a record; hand over if it is missing or not a number."""
    value = row.get(column)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise HandOver(f"{column} is {value!r}")
    return value


def optional(facts: Facts, *names: str) -> Facts:
    """Return the given optional inputs that are present."""
    return {name: facts[name] for name in names if name in facts}
