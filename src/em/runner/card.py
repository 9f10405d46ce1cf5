"""Cards of stored routines: what a list of tools shows of each, made once of its package.

Parsing every package takes longer than an agent waits for its tools. So the store has a small card
beside each routine. It is made again when the routine or the code that makes it has changed, which
`maker` notices: an old card may show what a later em would leave out.
"""

import os
from collections.abc import Container, Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from em.errors import EmError
from em.log.event import EventQuery
from em.settings import McpServer
from em.store.protocol import Artefact, Card, Commit, Store
from em.values.canonical import Json
from em.values.json_schema import examples_of, properties_of
from em.values.leaves import shapes, without_personal_data

if TYPE_CHECKING:
    from em.runner.routine import Routine


def public_form(routine: "Routine", *, is_shared: bool = False) -> "Routine":
    """Return a routine that can be given to others, and runs.

    People see it who may not see the traces. Its steps stay, and so do values that several
    recordings had in common; of recorded examples only the shape is left.

    is_shared: its words are those of several traces, not of one person.
    """
    from em.runner.routine import Routine  # here: lists of tools are made without it

    return Routine(
        name=routine.name,
        description=description_of(routine),
        checks=routine.checks,
        tools=routine.tools,
        input_schema=described_input(routine) or None,
        # The words of one person's request may be personal.
        requests=routine.requests if is_shared else (),
        output_schema=routine.output_schema,
        secrets=routine.secrets,
        steps=routine.steps,
    )


def described_input(routine: "Routine") -> Json:
    """Return the schema of the input for whoever fills it in.

    It shows what recorded values look like and not the values, since they may be personal data.
    """
    schema = routine.input_schema or {}
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return schema
    return {**schema, "properties": {name: _described(one) for name, one in properties.items()}}


def _described(one: Any) -> Any:
    """Return an input of the schema with the shapes of recorded values."""
    if not isinstance(one, dict) or "examples" not in one:
        return one
    examples = shapes(examples_of(one))
    rest = {name: value for name, value in one.items() if name != "examples"}
    return {**rest, "examples": examples} if examples else rest


def description_of(routine: "Routine") -> str:
    """Return what a routine is for, with recorded values as `{name}`: they may be personal."""
    properties = properties_of(routine.input_schema)
    known = {name: one.get("examples") for name, one in properties.items()}
    return without_personal_data(routine.description, known)


KIND = "routine"
LONGEST_TITLE = 80
"""Characters of a title."""

_MADE_BY = (
    "runner/card.py", "runner/package.py", "runner/routine.py",
    "runner/trial.py", "runner/tools/__init__.py", "runner/tools/coding.py", "values/canonical.py",
    "values/leaves.py", "values/json_schema.py",
)  # fmt: skip
"""The files whose code decides what a card says."""


class RoutineCard(msgspec.Struct, frozen=True, kw_only=True):
    """A routine as a list shows it.

    needs: the tools that it calls and that neither the routine nor em says how to call.
    proof: how it did on other tasks of its kind. calls_tools: it calls anything but functions.
    """

    title: str
    about: str
    proof: str
    input_schema: Json
    only_reads: bool
    calls_tools: bool
    needs: list[str]

    def missing(self, tools: Iterable[str], servers: Mapping[str, McpServer]) -> list[str]:
        """Return the tools that it lacks where these tools and MCP servers are there."""
        lacking = [name for name in self.needs if name not in set(tools)]
        if not lacking or not servers:
            return lacking
        from em.runner.routine import ToolSpec

        specs = [ToolSpec(name=server, mcp=how) for server, how in servers.items()]
        return [name for name in lacking if not any(spec.of_server(name) for spec in specs)]


class _Stored(msgspec.Struct, frozen=True):
    """A card in the store. Without a card, the routine can't be read."""

    maker: str
    card: RoutineCard | None


class ListedRoutine(msgspec.Struct, frozen=True, kw_only=True):
    """A routine in a list: its newest version in use, or the newest if none is.

    at: when that version was stored. status: `in use`, `proposed` or `retired`. about: what it
    does, where it is in use.
    """

    name: str
    version: int
    versions: int
    at: datetime
    status: str
    about: str

    @property
    def ref(self) -> str:
        """The routine with the number of its version."""
        return f"{self.name}@{self.version}"


def list_routines(store: Store, words: str = "") -> list[ListedRoutine]:
    """Return the routines whose name or description contains the words, by name.

    It reads a small row for each version, and makes the cards that are missing.
    """
    box = CardBox(store)
    cards = box.newest()
    box.save()
    versions: dict[str, list[Card]] = {}
    for row in store.cards(KIND, retired=True):
        versions.setdefault(row.name, []).append(row)
    retired = retired_refs(store)
    listed = [_listed(rows, cards.get(name), retired) for name, rows in versions.items()]
    wanted = words.casefold()
    return [one for one in listed if wanted in f"{one.name} {one.about}".casefold()]


def retired_refs(store: Store, stream: str | None = None) -> set[str]:
    """Return the versions that were in use once and were retired, as the log says."""
    events = store.read(EventQuery(kinds=["routine_retired"], stream=stream))
    return {event.body["routine"] for event in events if event.body is not None}


def _listed(
    rows: Sequence[Card], card: tuple[int, RoutineCard] | None, retired: Container[str]
) -> ListedRoutine:
    newest = max(rows, key=lambda row: (row.retired_at is None, row.version))
    out_of_use = "retired" if f"{newest.name}@{newest.version}" in retired else "proposed"
    return ListedRoutine(
        name=newest.name,
        version=newest.version,
        versions=len(rows),
        at=newest.created_at,
        status="in use" if newest.retired_at is None else out_of_use,
        about="" if card is None else f"{card[1].about} {card[1].proof}".strip(),
    )


class CardBox:
    """The cards of the routines in a store. Safe to share between threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, RoutineCard | None] = {}
        self._new: dict[str, Json] = {}

    def newest(self) -> dict[str, tuple[int, RoutineCard]]:
        """Return by name the newest readable version of every routine in use, with its card."""
        rows: dict[str, list[Card]] = {}
        for row in self._store.cards(KIND):
            rows.setdefault(row.name, []).append(row)
        found: dict[str, tuple[int, RoutineCard]] = {}
        known: dict[str, RoutineCard | None] = {}
        for name, versions in rows.items():
            for row in reversed(versions):
                card = known[row.id] = self._card(row)
                if card is not None:
                    found[name] = (row.version, card)
                    break
        self._known = known  # at once: other threads may be reading the old one
        return found

    def _card(self, row: Card) -> RoutineCard | None:
        if row.id in self._known:
            return self._known[row.id]
        stored = _stored(row.body)
        if stored is None:
            artefact = self._store.artefact(KIND, row.name, row.version)
            stored = _Stored(maker(), None if artefact is None else _made(artefact))
            self._new[row.id] = msgspec.to_builtins(stored)
        return stored.card

    def save(self) -> None:
        """Store the cards that were made. A store that can't be written to now gets them later."""
        new, self._new = self._new, {}
        if new:
            try:
                self._store.commit(Commit(cards=new))
            except EmError:
                return  # they are only a shortcut: whoever lists next makes them again


def _stored(body: Json | None) -> _Stored | None:
    """Return a stored card; None if there is none, or other code made it."""
    if body is None or body.get("maker") != maker():
        return None
    try:
        return msgspec.convert(body, _Stored)
    except msgspec.ValidationError:
        return None


@lru_cache(maxsize=1)
def maker() -> str:
    """Return what tells the code that makes cards from other versions of it."""
    code = blake2b(digest_size=16)
    try:
        for name in _MADE_BY:
            code.update((Path(__file__).parents[1] / name).read_bytes())
    except OSError:  # installed without its sources: trust no stored card
        return os.urandom(16).hex()
    return code.hexdigest()


def _made(artefact: Artefact) -> RoutineCard | None:
    """Make the card of a stored routine; None if it can't be read."""
    from em.runner.card import described_input, description_of
    from em.runner.package import routine_of
    from em.runner.routine import ToolStep
    from em.runner.tools import one_line
    from em.runner.tools.coding import is_coding_tool

    try:
        routine = routine_of(artefact)
    except EmError:
        return None
    said = one_line(description_of(routine))
    about = said or f"Run the routine {one_line(routine.name, 100)}."
    proof = ""
    if routine.trials:
        about, proof = f"{about.rstrip('.')}.", f"On others like it: {routine.trials.summary}."
    if routine.trials.warning:
        about = f"{routine.trials.warning} {about}"
    schema = dict(described_input(routine))
    if schema.get("additionalProperties") is False:
        del schema["additionalProperties"]  # `request` is taken too
    effects = {tool.name: tool.known_effect for tool in routine.tools}
    calls = [step for step in routine.all_steps if isinstance(step, ToolStep)]
    return RoutineCard(
        title=_title(routine.name, said),
        about=about,
        proof=proof,
        input_schema=schema if schema.get("type") == "object" else {**schema, "type": "object"},
        only_reads={step.effect or effects.get(step.tool) for step in calls} <= {"read"},
        calls_tools=bool(routine.called_tools),
        needs=sorted(
            name
            for name in routine.called_tools
            if routine.says_how(name) is None and not is_coding_tool(name)
        ),
    )


def _title(name: str, said: str) -> str:
    """Return what people see of a routine in a list: what it does, else its name in words."""
    from em.runner.tools import one_line

    words = one_line(name.replace("_", " "), LONGEST_TITLE)
    return (
        one_line(said.partition(". ")[0].rstrip("."), LONGEST_TITLE)
        or words[:1].upper() + words[1:]
    )
