"""Kinds that were taught: recorded with typed inputs and a request each, and compiled.

Everything from a recording to a write is em's own: the schema that a model is shown is the learnt
one. Only the model is scripted. It is careful: it gives the inputs that the schema has with the
values that the author of the case says, and names what the schema has no input for.
"""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import em
from bench.words.cases import Case
from bench.words.recorded import mixed
from em.llm import ScriptedClient
from em.runner.package import find_routine, routine_of
from em.values.json_schema import by_names, properties_of

YES, NO = {"reason": "as it was asked", "yes": True}, {"reason": "not asked", "yes": False}


class Taught(NamedTuple):
    """A kind that a memory has a routine for."""

    memory: em.Memory
    name: str
    schema: Mapping[str, Any]
    tool: Any
    written: list[Any]

    def lacks(self, inputs: Mapping[str, Any]) -> list[str]:
        """Return the inputs that no recording had."""
        return [name for name in by_names(self.schema, dict(inputs)) if name not in self._known]

    @property
    def _known(self) -> Mapping[str, Any]:
        return properties_of(self.schema)

    def reading(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a model answers that reads these inputs in a request."""
        lacks = self.lacks(inputs)
        named = by_names(self.schema, dict(inputs))
        known = {name: one for name, one in named.items() if name not in lacks}
        missing = [name for name in self.schema.get("required", ()) if name not in known]
        return {"fits": True, "inputs": known, "missing": missing, "not_expressed": lacks}

    def asked(self, request: str, reading: Any, decision: Any, **options: Any) -> tuple[Any, int]:
        """Run a request; return the result, and how often the model was asked."""
        client = ScriptedClient([reading, decision])
        self.written.clear()
        given = {"request": request}
        result = self.memory.run(self.name, given, [self.tool], client=client, **options)
        return result, len(client.requests)


@contextmanager
def taught(kind: Case, size: int, *, declares: bool) -> Iterator[Taught]:
    """Teach a kind. declares: its tool says what it takes, as a tool that a model calls does."""
    written: list[Any] = []

    def write(**arguments: Any) -> dict[str, Any]:
        written.append(arguments)
        return {"done": True}

    name, definition = kind["name"], {"name": kind["name"], "input_schema": kind["input_schema"]}
    made: Any = (definition, write) if declares else write
    tool: Any = em.tool(made, name=name, effect="write")
    record: Any = tool[1] if declares else tool
    with tempfile.TemporaryDirectory() as folder, em.Memory(Path(folder) / "em.db") as memory:
        for _, case in mixed(kind["recorded"])[:size]:
            with memory.record(name, {**case["inputs"], "request": case["request"]}):
                record(**case["inputs"])
        memory.compile([one.id for one in memory.traces()], name=name, force=True)
        schema = routine_of(find_routine(memory.store, name)).input_schema or {}
        yield Taught(memory, name, schema, tool, written)


def grouped(problems: Sequence[tuple[str, str]]) -> str:
    """Return why requests were handed over, one in a line with its request."""
    return "".join(f"\n      {why} | {request[:90]}" for why, request in sorted(problems))
