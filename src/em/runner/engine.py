"""The engine: runs a routine (`run_routine`, `arun_routine`) and resumes a run (`resume_run`)."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict, TypeVar, Unpack

import msgspec

from em import telemetry
from em.errors import EmError, NotAllowed, RoutineError, UsageError
from em.log.use import Uses, collecting
from em.redaction.redactor import MARKER
from em.runner.answers import check_steps
from em.runner.drivers import (
    CallTool,
    Consult,
    Effect,
    Effects,
    WriteNotes,
    adrive,
    drive,
    no_journal,
    through,
)
from em.runner.history import PastRun, package_of, read_run, refuse_partial, refuse_retry, savings
from em.runner.journal import (
    Attempt,
    Journal,
    Note,
    answered_note,
    by_whom,
    fits,
    keepable,
    resumed_note,
    retried_note,
    running,
    started_note,
)
from em.runner.machine import AutoFix, Machine, writes
from em.runner.package import UDF, Package
from em.runner.request import Bound, bind
from em.runner.run import Asks, PendingPrompt, RunResult, StepReport
from em.runner.secrets import Given, Secrets, without_secrets
from em.runner.standing import refuse_if_off, routines_mode
from em.runner.tools import Function, Tool, ToolRegistry, Tools, code_digest
from em.runner.tools.readers import NamedInput
from em.settings import AllowSettings
from em.store.protocol import Store
from em.trust import content_hash
from em.values.canonical import Json
from em.values.files import path_to_text
from em.values.times import new_id

if TYPE_CHECKING:
    from em.llm.client import LlmClient


R = TypeVar("R", bound=RunResult)


def drive_run(name: str, machine: Effects[R], write: WriteNotes, store: Store | None) -> R:
    """Drive a run to its end, in a span with its outcome if anything is traced."""
    if not telemetry.is_on():
        return drive(machine, write)
    with telemetry.span("em.run", {"em.routine": name}) as span:
        result = drive(through(machine, _traced), write)
        _tell(span, result)
    _count(result, store)
    return result


async def adrive_run(name: str, machine: Effects[R], write: WriteNotes, store: Store | None) -> R:
    """Drive a run under asyncio, as `drive_run` does."""
    if not telemetry.is_on():
        return await adrive(machine, write)
    import asyncio

    with telemetry.span("em.run", {"em.routine": name}) as span:
        result = await adrive(through(machine, _traced), write)
        _tell(span, result)
    await asyncio.to_thread(_count, result, store)
    return result


def _tell(span: telemetry.Note, result: RunResult) -> None:
    span.set("em.run.outcome", result.status)
    if result.failure is not None:
        span.fail(result.failure.error_type)


def _count(result: RunResult, store: Store | None) -> None:
    telemetry.count("em.runs", 1, {"em.run.outcome": result.status})
    if store is None or result.status != "ok":
        return
    try:
        figures = savings(store, read_run(store, result.run_id))
    except EmError:
        return  # no figure is worth a run that fails
    saved = sum(one.saved or 0 for one in figures if one.what in ("calls", "model calls"))
    if saved > 0:
        telemetry.count("em.calls_saved", saved)


def _traced(effect: Effect) -> Effects[Any]:
    """Pass an effect on, in a span if it is a call: the driver makes it while this one waits."""
    if not isinstance(effect, CallTool):
        return (yield effect)
    name = getattr(effect.function, "__name__", type(effect.function).__name__)
    with telemetry.span("em.step", {"em.tool": str(name)}):
        return (yield effect)


class RunOptions(TypedDict, total=False):
    """Options of running and resuming, beside the routine, its input and its tools."""

    udfs: Mapping[str, Function] | None
    """Functions beside those of udf.py."""
    answers: Mapping[str, Json] | None
    """A person's answers, by the ids of prompts."""
    on_step: Callable[[StepReport], None] | None
    """Called with the report of each step that ended."""
    on_start: Callable[[str], None] | None
    """Called with the id of each step that begins."""
    secrets: Given
    """The routine's secrets by name, a mapping or a function; others come from the environment."""
    allow: AllowSettings | None
    """What declared tools may use; without it, what em.yaml allows."""
    resume_with: str
    """The options that `em resume` needs again, stored to be shown."""
    trust: bool
    """A person has read the functions that a model wrote: run them in this process."""
    ask: Callable[[PendingPrompt], Json | None] | None
    """Called with each question of a run without a journal. Without its answer the run waits."""
    routines: Literal["off", "shadow", "on"]
    """The switch for all routines; without it, as the environment and em.yaml say."""
    is_held: bool
    """The caller makes sure that nobody else works on this run, as a workflow does."""
    subject: str | None
    """Who the run is about: forgetting the subject forgets the run. A resumed run keeps its own."""
    asks: Asks
    """False: nobody can be asked. A run that would wait for an answer hands over, or fails after a
    write, so that it waits in no list. "steps": missing inputs hand over, since the caller can give
    them, and the questions of steps wait for a person."""
    client: "LlmClient | None"
    """A model that reads a request in words where no template fits it (`em.runner.request`)."""
    second_question: bool
    """Show the model what would be written for a request that it read, and ask for a yes or no."""


def run_routine(
    routine_dir: str | Path | Package,
    input_data: Json | None = None,
    tool_registry: Tools = None,
    auto_fix_fn: AutoFix | None = None,
    *,
    store: Store | None = None,
    run_id: str | None = None,
    **options: Unpack[RunOptions],
) -> RunResult:
    """Run a routine without a model.

    A failing step is reported in the result. Raises only if the routine can't run at all: it is
    missing, or its YAML is invalid. With a `store` every step is journalled, and an interrupted run
    can be resumed by its `run_id`; then a missing tool, function, secret or permission is raised
    too, before anything is journalled. Functions that a model wrote run in the sandbox. See
    `RunOptions` for the rest.
    """
    given = input_of(input_data)
    with begun(routine_dir, tool_registry, auto_fix_fn, options, store, run_id) as run:
        return run.done(run.fresh(given))


async def arun_routine(
    routine_dir: str | Path | Package,
    input_data: Json | None = None,
    tool_registry: Tools = None,
    auto_fix_fn: AutoFix | None = None,
    *,
    store: Store | None = None,
    run_id: str | None = None,
    **options: Unpack[RunOptions],
) -> RunResult:
    """Run a routine under asyncio: await coroutines, run other tools in threads."""
    given = input_of(input_data)
    with begun(routine_dir, tool_registry, auto_fix_fn, options, store, run_id) as run:
        return await run.adone(run.fresh(given))


def resume_run(
    store: Store,
    run_id: str,
    tool_registry: Tools = None,
    auto_fix_fn: AutoFix | None = None,
    *,
    input_data: Json | None = None,
    retry: bool = False,
    by: str = "",
    **options: Unpack[RunOptions],
) -> RunResult:
    """Resume a run that was interrupted, or that waits for an answer.

    No completed call with an effect is made again. As long as none was made, reads are made again,
    so that the run acts on the world of today; afterwards they stay as they were. A call that was
    under way is repeated only if it is a read or has an idempotency key; otherwise the run asks for
    its outcome (`needs_input`). Raises RoutineError
    if the routine, its functions or its tools were changed, and RunBusy if somebody else works on
    the run.

    retry: take up a run that failed or was cancelled, at the step where it stopped. Raises
    RoutineError where a call might be made twice (`em.runner.history`).
    by: who wants it, for the log.
    """
    with held(store, run_id, options):
        retried = [retried_note(by)] if retry else []
        return _resume(store, run_id, tool_registry, auto_fix_fn, input_data, options, retried)


def held(store: Store | None, run_id: str, options: RunOptions) -> AbstractContextManager[None]:
    """Make sure that nobody else works on a run."""
    return nullcontext() if store is None or options.get("is_held") else running(store, run_id)


@contextmanager
def begun(
    routine_dir: str | Path | Package,
    tools: Tools,
    auto_fix: AutoFix | None,
    options: RunOptions,
    store: Store | None,
    run_id: str | None = None,
) -> Iterator["OneRun"]:
    """Hold a new run, and open everything that it needs."""
    run_id = run_id or new_id()
    with (
        held(store, run_id, options),
        OneRun(routine_dir, tools, auto_fix, options, store, run_id) as run,
    ):
        yield run


def _resume(
    store: Store,
    run_id: str,
    tool_registry: Tools,
    auto_fix_fn: AutoFix | None,
    input_data: Json | None,
    options: RunOptions,
    retried: list[Note],
) -> RunResult:
    past = read_run(store, run_id)
    refuse_partial(past)
    if input_data is not None:
        past.input = same_input(past, input_of(input_data))
    refuse_lost_secrets(past, options.get("answers") or {})
    if retried:
        refuse_retry(past)
    elif past.is_over:
        done = ((past.failure or {}).get("context") or {}).get("done")
        status = past.status.replace("_", " ")
        raise RoutineError(
            f"this run is over: {status}{by_whom(past.cancelled)}",
            place=f"run {past.run_id}",
            fix=f"{', '.join(done)} was done, and a new run would do it again" if done else "",
        )
    with package_of(store, past) as package:
        package.check_unchanged(past.routine_hash)
        with OneRun(package, tool_registry, auto_fix_fn, options, store, run_id) as run:
            run.subject = past.subject
            return run.done(run.go_on(past, retried), past.pos)


def refuse_lost_secrets(past: PastRun, answers: Mapping[str, Json]) -> None:
    """Raise if the run was given a secret, which the journal does not store, and lacks it now."""
    kept = {step: said for step, said in past.restored.answers.items() if step not in answers}
    if MARKER.search(msgspec.json.encode([past.input, kept]).decode()):
        raise RoutineError(
            "the input or an answer of this run was a secret, which the journal does not store",
            place=f"run {past.run_id}",
            fix="pass it again (--input; --params for a workflow), and the answers (--answers)",
        )


def same_input(past: PastRun, given: Json) -> Json:
    """Return the input again, if it is what the run began with; otherwise raise."""
    if not fits(past.input, keepable(given, "input")):
        raise RoutineError(
            "this input differs from the one that the run began with",
            place=f"run {past.run_id}, input",
            fix="pass the same input again, or start a new run",
        )
    return given


class OneRun:
    """Everything that one run needs. A context manager: it ends the sandbox and MCP servers."""

    def __init__(
        self,
        routine_dir: str | Path | Package,
        tools: Tools,
        auto_fix: AutoFix | None,
        options: RunOptions,
        store: Store | None,
        run_id: str,
    ) -> None:
        if unknown := options.keys() - RunOptions.__annotations__.keys():
            # A dry run that was asked for in another way must not become a run.
            raise TypeError(f"a run got an unexpected keyword argument {min(unknown)!r}")
        self.package = routine_dir if isinstance(routine_dir, Package) else Package(routine_dir)
        self.store, self.run_id = store, run_id
        self.mode = options.get("routines") or routines_mode()
        self.answers = options.get("answers")
        self._resume_with = options.get("resume_with", "")
        self.subject = options.get("subject")
        self._client = options.get("client")
        self._asks_twice = options.get("second_question", False)
        # What the tools get from a memory.
        self.uses = Uses()
        self.secrets = Secrets(
            self.package.routine.secrets,
            options.get("secrets"),
            options.get("allow"),
            self.package.folder,
        )
        registry = tools if isinstance(tools, ToolRegistry) else ToolRegistry(tools)
        self._servers = ExitStack()
        self._named = NamedInput()
        known, refusal = _with_declared(
            self.package, registry, options.get("allow"), self.secrets, self._servers, self._named
        )
        self._udfs = self.package.udfs(trust=options.get("trust", False))
        self.options: dict[str, Any] = {
            "tools": known,
            "secrets": self.secrets,
            "refusal": refusal,
            "udfs": {**self._udfs, **(options.get("udfs") or {})},
            "auto_fix": self.secrets.asking(auto_fix),
            "answers": self.answers,
            "on_step": self.secrets.telling(options.get("on_step")),
            "on_start": options.get("on_start"),
            "asks": options.get("asks", True),
            # An answer to a journalled run is written before it is used: the run waits for it.
            "ask": None if store is not None else self.secrets.questioning(options.get("ask")),
        }

    @property
    def name(self) -> str:
        """The name of the routine."""
        return self.package.routine.name

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        with self._servers:
            self._udfs.__exit__(*exc)

    def done(self, machine: Effects[R], pos: int = 0) -> R:
        """Drive the run to its end; return its result without secrets. pos: of its last event."""
        with collecting(self.uses):
            found = drive_run(self.name, machine, self._write(pos), self.store)
            return self.secrets.result(found)

    async def adone(self, machine: Effects[R]) -> R:
        """Do the same under asyncio."""
        with collecting(self.uses):
            found = await adrive_run(self.name, machine, self._write(0), self.store)
            return self.secrets.result(found)

    def _write(self, pos: int) -> WriteNotes:
        if self.store is None:
            return no_journal
        run = self.store, self.run_id, pos
        return Journal(*run, subject=self.subject, uses=self.uses).write

    def fresh(self, given: Json) -> Effects[RunResult]:
        """Run the routine with these inputs, by name or as a request gives them."""
        bound = yield from self.bound(given)
        if bound.wishes and self._client is not None:
            from em.runner.preparation import as_agreed

            return (yield from as_agreed(self, bound, given, self._client))
        return (yield from self.begin(bound))

    def bound(self, given: Json) -> Effects[Bound]:
        """Return the inputs. Asking a model for them is an effect: it may take long."""
        if self._client is None:
            return self._bind(given)
        bound: Bound = yield Consult(lambda: self._bind(given))
        return bound

    def _bind(self, given: Json) -> Bound:
        by_names = self.package.program.by_names(given)
        bound = bind(
            self.package.routine,
            by_names,
            self._client,
            asks_twice=self._asks_twice,
        )
        # What was given is shown and stored if it can't be used.
        is_open = bound.problem and not bound.wishes
        return msgspec.structs.replace(bound, inputs=by_names) if is_open else bound

    def begin(
        self, bound: Bound, agreed: Callable[[Attempt], None] | None = None
    ) -> Effects[RunResult]:
        """Begin a new run; its first note is written with its first step's."""
        refuse_if_off(self.mode, self.name)
        input_data = self.take(bound)
        notes: list[Note] | None = None
        if self.store is not None:
            notes = [
                started_note(
                    path_to_text(self.package.folder.resolve()),
                    self.package.routine.name,
                    self.package.content_hash,
                    keepable(input_data, "input"),
                    stored=self.package.stored,
                    code=self.code(),
                )
            ]
            if self._resume_with:
                notes[0][1]["resume_with"] = self._resume_with
            notes += self._answered()
        program = self.package.program
        machine = Machine(program, run_id=self.run_id, notes=notes, agreed=agreed, **self.options)
        if self.store is not None:
            machine.check()
        return machine.run(input_data)

    def take(self, bound: Bound) -> Json:
        """Take the inputs of a new run, and return them."""
        self.options["bound"] = bound
        self._named.take(bound.inputs)
        if self.answers:
            check_steps(self.package.program, self.answers)
        return bound.inputs

    def go_on(self, past: PastRun, retried: list[Note]) -> Effects[RunResult]:
        """Resume a past run. retried: the note that says so, if it was over."""
        refuse_if_off(self.mode, self.name)
        self._named.take(past.input)
        if self.answers:
            check_steps(self.package.program, self.answers)
        notes, restored = self._answered(), past.restored
        if restored.results and self._acts() and not restored.has_acted(self.answers or {}):
            # Nothing was done with what was read, and it may be old by now.
            notes, restored = [resumed_note(), *notes], restored.without_reads()
        machine = Machine(
            self.package.program,
            run_id=past.run_id,
            notes=[*retried, *notes],
            restored=restored,
            **self.options,
        )
        # Raise instead of failing the run: a run that ended could not be resumed later.
        machine.check()
        self.check_code(past.code, f"run {past.run_id}")
        return machine.run(past.input)

    def _acts(self) -> bool:
        """Return whether a step has an effect."""
        tools = self.options["tools"]
        return any(
            writes(step, tools[step.target])
            if step.kind == "tool" and step.target in tools
            else step.is_write
            for step in self.package.program.steps
        )

    def code(self) -> list[tuple[str, str]]:
        """Return what errors call each piece of code that the run can call, and its digest."""
        own = self.package.udf_hash
        others = sorted({code_digest(each) for each in self.options["udfs"].values()})
        found = [(UDF, content_hash(repr([own, others]).encode()) if own or any(others) else "")]
        for name in sorted(self.package.program.tool_names):
            tool: Tool | None = self.options["tools"].get(name)
            digest = "" if tool is None else tool.digest or code_digest(tool.function)
            found.append((f"the tool {name!r}", digest))
        return [(what, digest[:16]) for what, digest in found]

    def check_code(self, code: Iterable[tuple[str, str]], place: str) -> None:
        """Raise if functions or tools differ from those that the run began with."""
        now = dict(self.code())
        for what, before in code:
            if now.get(what) != before:
                raise RoutineError(
                    f"{what} was changed since this run began",
                    place=place,
                    fix="restore the old code, or start a new run",
                )

    def _answered(self) -> list[Note]:
        if not self.answers:
            return []
        said = without_secrets(self.package.routine, self.answers)
        return [answered_note(keepable(said, "answers"))]


def _with_declared(
    package: Package,
    registry: ToolRegistry,
    allow: AllowSettings | None,
    secrets: Secrets,
    ending: ExitStack,
    input_named: NamedInput,
) -> tuple[Mapping[str, Tool], RoutineError | None]:
    """Return the registered and the declared tools, and the error if a tool is not allowed."""
    program = package.program
    missing = program.tool_names - registry.keys()
    if not missing:
        return registry, None
    from em.runner.tools.declarations import declared_tools, found_tools
    from em.runner.tools.mcp import Servers
    from em.runner.tools.permissions import default_tools, settings_for

    registry = ToolRegistry({**default_tools(package.folder), **registry})
    missing = program.tool_names - registry.keys()
    named = {name for name in missing if name in program.declared_names or name[:5] == "mcp__"}
    servers = ending.enter_context(Servers())
    try:
        allowed = settings_for(package.folder, allow)
        found = found_tools(package.routine, missing, registry, allowed, input_named)
        declared = declared_tools(package.routine, named - found.keys(), allowed, secrets, servers)
    except NotAllowed as error:
        from em.runner.tools.grant import all_lacking

        return registry, all_lacking(error, package, missing, allowed, secrets.unreadable)
    except RoutineError as error:
        return registry, error
    return {**found, **declared, **registry}, None


def input_of(input_data: Any) -> Json:
    """Return the input of a run; raise if it is none."""
    if input_data is None:
        return {}
    if not isinstance(input_data, dict):
        raise UsageError(
            f"the input must be a mapping of names to values, got a {type(input_data).__name__}",
            place="input_data",
        )
    return input_data
