"""The learner as a user of em calls it: traces go into a memory, a routine comes out and is run.

This is the only file of the bench that knows how em is called. It uses em's public API only.
"""

import importlib
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from bench.right.verdict import Ended

if TYPE_CHECKING:
    from em import Memory
    from em.traces.trace import Trace

    Recordings = Mapping[str, Sequence[tuple[Mapping[str, Any], Trace]]]

Tools = Mapping[str, Callable[..., Any]]
PLAIN = "bench.learn.learner:Plain"
"""em's learner of routines with typed inputs."""


class Way(NamedTuple):
    """How a routine is run.

    registered: its tools are registered before; otherwise each run is given their functions.
    """

    journal: bool = False
    registered: bool = False


class Learnt:
    """A learnt routine."""

    def __init__(self, memory: "Memory", routine: Any) -> None:
        self._memory, self.routine = memory, routine

    def run(self, request: str, tools: Tools, more: Mapping[str, Any] | None = None) -> Ended:
        """Run the routine with inputs, or with a request in words if it has none of them.

        more: inputs, of which the routine gets those that it has. The caller looks at the world.
        """
        from em.errors import EmError

        given = {name: one for name, one in (more or {}).items() if name in self._inputs()}
        try:
            ran = self._memory.run(self.routine, given or {"request": request}, dict(tools))
        except EmError as error:
            return Ended("raised", f"{error.code}: {error}")
        why = ran.failure or ran.pending_prompt or ran.reason
        return Ended(ran.status, "" if why is None else f"{why.step_id}: {why.message}")

    def _inputs(self) -> set[str]:
        from em.runner.package import opened

        with opened(self._memory.store, self.routine) as package:
            return {*(package.routine.input_schema or {}).get("properties", {})}

    def tools(self) -> set[str]:
        """The tools that the routine calls."""
        from em.runner.package import opened

        with opened(self._memory.store, self.routine) as package:
            return package.routine.called_tools

    @contextmanager
    def prepared(
        self, given: Mapping[str, Any], tools: Tools, way: Way
    ) -> Iterator[Callable[[], int]]:
        """A function that runs the opened routine each time it is called, and counts its steps."""
        from em.runner.engine import run_routine
        from em.runner.package import opened
        from em.runner.tools import ToolRegistry

        memory, input_data = self._memory, dict(given)
        known = ToolRegistry(tools) if way.registered else tools
        store = memory.store if way.journal else None

        def run() -> int:
            ran = run_routine(package, input_data, known, store=store)
            assert ran.status == "ok", ran
            return len(ran.steps)

        with opened(memory.store, self.routine) as package:
            yield run


class Learner:
    """A memory with traces, and the routines learnt from them."""

    def __init__(self, folder: Path) -> None:
        from em import Memory

        folder.mkdir(parents=True, exist_ok=True)
        self.memory = Memory(folder / "learn.db")
        self._ids: dict[str, str] = {}

    def record(self, traces: "Mapping[str, Trace | Mapping[str, Any]]") -> None:
        """Store traces under names. A trace that is there already is not stored twice."""
        for name, trace in traces.items():
            if name not in self._ids:
                self._ids[name] = self.memory.add_trace(trace)

    def learn(self, kind: str, names: Sequence[str]) -> Learnt | str:
        """Return the routine of a kind of task, or why there is none."""
        from em.errors import EmError

        try:
            routine = self.memory.compile([self._ids[name] for name in names], name=kind)
        except EmError as error:
            return f"{error.code}: {error}"
        return Learnt(self.memory, routine)

    def close(self) -> None:
        self.memory.close()


class Runnable(Protocol):
    """A routine with typed inputs."""

    def run(self, inputs: Mapping[str, Any], tools: Tools) -> Ended:
        """Run it. The caller looks at what became of the world."""


class TypedLearner(Protocol):
    """A learner of routines with typed inputs."""

    def learn(self, kinds: "Recordings", reads: frozenset[str]) -> Mapping[str, Runnable]:
        """Learn a routine for each kind from its inputs and traces; kinds may help one another.

        A kind that can't be learnt is left out. reads: the tools that change nothing.
        """


class Plain:
    """em's learner, `em.compiler.learner`, without a memory: examples in, routines out.

    by: who compiles, as `em.compiler.evidence` names it.
    """

    def __init__(self, by: str = "CONSTANTS_SHOWN") -> None:
        self._caution = getattr(importlib.import_module("em.compiler.evidence"), by)
        self._folder = tempfile.TemporaryDirectory()
        self._learn = importlib.import_module("em.compiler.learner").learn
        self._example = importlib.import_module("em.compiler.example")

    def learn(self, kinds: "Recordings", reads: frozenset[str]) -> dict[str, Runnable]:
        examples = {
            kind: [self._as_example(inputs, trace, reads) for inputs, trace in recorded]
            for kind, recorded in kinds.items()
        }
        made = {
            kind: self._learn(kind, own, caution=self._caution) for kind, own in examples.items()
        }
        return {kind: self._routine(kind, learnt.routine) for kind, learnt in made.items()}

    def _as_example(self, inputs: Mapping[str, Any], trace: "Trace", reads: frozenset[str]) -> Any:
        from em.traces.trace import ToolCall

        calls = [
            self._example.Call(
                one.tool, one.args, one.result, one.error, "read" if one.tool in reads else "write"
            )
            for one in trace.events
            if isinstance(one, ToolCall)
        ]
        return self._example.Example(dict(inputs), calls, name=(*trace.tags, "")[0])

    def _routine(self, kind: str, document: Mapping[str, Any]) -> "PlainRoutine":
        folder = Path(tempfile.mkdtemp(prefix=f"{kind}-", dir=self._folder.name))
        (folder / "routine.yaml").write_text(json.dumps(document, ensure_ascii=False))
        return PlainRoutine(folder)


class PlainRoutine:
    """A routine in a folder, run without a journal."""

    def __init__(self, folder: Path) -> None:
        from em.runner.package import Package

        self._package = Package(folder)

    def run(self, inputs: Mapping[str, Any], tools: Tools) -> Ended:
        from em.errors import EmError
        from em.runner.engine import run_routine

        try:
            ran = run_routine(self._package, dict(inputs), dict(tools))
        except EmError as error:
            return Ended("raised", f"{error.code}: {error}")
        why = ran.failure or ran.pending_prompt or getattr(ran, "reason", None)
        return Ended(ran.status, "" if why is None else f"{why.step_id}: {why.message}")


def typed_learner(path: str) -> TypedLearner:
    """A learner by `module:class`."""
    module, _, name = path.partition(":")
    found: TypedLearner = getattr(importlib.import_module(module), name)()
    return found
