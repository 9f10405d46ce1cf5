"""The tools that every workflow has: asking models, running routines, recalling."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from em.errors import EmError, InputError, NotAllowed, UsageError, WorkflowError
from em.llm.client import Completion, LlmClient
from em.llm.providers import PROVIDERS, get_llm_client
from em.log.event import EventQuery, inner_run_id, run_stream
from em.runner.engine import RunOptions, resume_run, run_routine
from em.runner.expressions.language import as_text
from em.runner.history import read_run, retry_problem
from em.runner.package import opened
from em.runner.routine import Routine
from em.runner.run import Pause, PendingPrompt, RunResult
from em.runner.secrets import Secrets
from em.runner.tools import Function, Tool, ToolRegistry, missing_tool
from em.runner.tools.declarations import declared_tools, spec_of
from em.runner.tools.mcp import Servers
from em.runner.tools.permissions import FIELDS, refused
from em.settings import AllowSettings, Settings
from em.store import redactor_of
from em.store.protocol import Store
from em.values.call import Effect
from em.values.canonical import Json
from em.workflows.plan import ASK, ASKS_A_MODEL, BUILT_IN, ROUTINE, Plan, PlannedStep

if TYPE_CHECKING:
    from em.workflows.conductor import Conductor
    from em.workflows.runs import Workflows

SIDE_BY_SIDE = 8


class Sourced(msgspec.Struct, frozen=True):
    """A value from outside the run, and the events it came from: forgetting follows them."""

    value: Any
    from_events: Sequence[str] = ()


class RecallSource(Protocol):
    """A function that searches a memory."""

    def __call__(self, query: str, k: int, subject: str | None = None, **only: Any) -> Sourced:
        """Return the `k` best texts, best first; `only` are the filters of `Memory.recall`."""


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """Where needs from outside the run are fetched; a Memory passes its own functions."""

    recall: RecallSource | None = None
    heuristics: Callable[[str, int], Sourced] | None = None
    """Takes a task and a number of lessons; returns a briefing."""
    state: Callable[[str, str], Sourced] | None = None
    """Takes a subject and a path; returns its state there, or None."""


class Models:
    """LLM clients by provider and model; a client that is passed, or scripted, serves all."""

    def __init__(self, settings: Settings, client: LlmClient | None = None) -> None:
        self._settings = settings
        self._redactor = redactor_of(settings)
        self._lock = threading.Lock()
        self._clients: dict[tuple[str | None, str | None], LlmClient] = {}
        self._only = client

    def client(self, provider: str | None, model: str | None) -> LlmClient:
        """Return the client of a model. Raises MissingKey, which names the variable to set."""
        if self._only is not None:
            return self._only
        key = (None, None) if self._is_scripted else (provider or None, model or None)
        with self._lock:
            if key not in self._clients:
                self._clients[key] = get_llm_client(*key, settings=self._settings)
            return self._clients[key]

    @property
    def _is_scripted(self) -> bool:
        name = self._settings.llm.provider or ""
        known = self._settings.providers.get(name) or PROVIDERS.get(name)
        return known is not None and known.protocol == "scripted"

    def ask(
        self,
        prompt: Any,
        provider: str | None = None,
        model: str | None = None,
        system: str = "",
        max_tokens: int = 4096,
        temperature: float | None = None,
        output_schema: Json | None = None,
    ) -> Json:
        """Run `model_call`: return the answer, and what it used."""
        client = self.client(provider, model)
        done = client.complete(
            self._redactor.text(as_text(prompt)),  # no model needs a recognisable secret
            system=self._redactor.text(as_text(system)),
            schema=output_schema,
            max_tokens=int(max_tokens),
            temperature=None if temperature is None else float(temperature),
        )
        output = done.text if output_schema is None else done.value
        return {"output": output, "metadata": _took(client, done)}

    def ask_several(
        self,
        prompt: Any,
        models: Sequence[Any],
        system: str = "",
        max_tokens: int = 4096,
        temperature: float | None = None,
        least: int | None = None,
    ) -> Json:
        """Run `parallel_query`: ask several models; return the answers by `provider/model`.

        A model that is given as a mapping may have a `prompt` of its own.
        """
        asked = [_named(one) for one in models] if isinstance(models, list) else []
        if not asked:
            raise InputError(
                "`models` must list at least one model",
                place="models",
                fix='write models: ["anthropic/MODEL", {provider: openai, model: MODEL}]',
            )
        from concurrent.futures import ThreadPoolExecutor

        def one(model: Any, who: tuple[str, str | None]) -> Json | EmError:
            own = model if isinstance(model, Mapping) else {}
            length, heat = own.get("max_tokens", max_tokens), own.get("temperature", temperature)
            try:
                return self.ask(own.get("prompt", prompt), *who, system, length, heat)
            except EmError as error:
                return error

        with ThreadPoolExecutor(max_workers=min(SIDE_BY_SIDE, len(asked))) as pool:
            found = dict(zip(_labels(asked), pool.map(one, models, asked), strict=True))
        answers = {name: said for name, said in found.items() if not isinstance(said, EmError)}
        errors = {name: str(said) for name, said in found.items() if isinstance(said, EmError)}
        if len(answers) < (len(asked) if least is None else least):
            name, why = next(iter(errors.items()))
            raise WorkflowError(f"{len(errors)} of {len(asked)} gave no answer; {name}: {why}")
        metadata = {name: said["metadata"] for name, said in answers.items()}
        if errors:
            metadata["errors"] = errors
        return {
            "output": {name: said["output"] for name, said in answers.items()},
            "metadata": metadata,
        }


def _took(client: LlmClient, done: Completion) -> Json:
    took: Json = {
        "provider": client.provider,
        "model": done.model or client.model,
        "tokens": msgspec.to_builtins(done.usage),
        "seconds": round(done.seconds, 3),
    }
    if done.cost_usd is not None:
        took["cost_usd"] = done.cost_usd
    if done.stop != "end":
        took["stop"] = done.stop
    return took


def _named(one: Any) -> tuple[str, str | None]:
    if isinstance(one, str) and one:
        provider, _, model = one.partition("/")
        return provider, model or None
    if isinstance(one, Mapping) and isinstance(one.get("provider"), str):
        return one["provider"], one.get("model")
    raise InputError(
        f"expected provider/model, got {one!r}"[:200], place="models", fix="write provider/model"
    )


def _labels(asked: Sequence[tuple[str, str | None]]) -> list[str]:
    labels: list[str] = []
    for provider, model in asked:
        label = f"{provider}/{model}" if model else provider
        times = sum(known.partition("#")[0] == label for known in labels)
        labels.append(f"{label}#{times + 1}" if times else label)
    return labels


class InnerRoutines:
    """Runs `run_routine`: an inner run, which is resumed if the step is repeated.

    subject: who the workflow's run is about, and with it the inner run.
    retry: a person retries the workflow's run, and with it each inner run that stopped, once.
    """

    def __init__(
        self,
        store: Store,
        tools: ToolRegistry,
        allow: AllowSettings | None,
        subject: str | None,
        *,
        retry: bool = False,
    ) -> None:
        self._store = store
        self._tools = tools
        self._allow = allow
        self._subject = subject
        self._retry = retry
        self._retried: set[str] = set()

    def runner(
        self, step: str, answers: Mapping[str, Json], note: Callable[[Sequence[str]], None]
    ) -> Function:
        """Return the tool of one step.

        answers: for the prompts of its routine. note: called with the last event of the inner run,
        of which the step's result is made.
        """

        def run(routine: str, idempotency_key: str, input: Json | None = None) -> Any:  # noqa: A002 - as the step writes it
            run_id = inner_run_id(idempotency_key)
            result = self._run(routine, input or {}, run_id, step, answers)
            newest = EventQuery(stream=run_stream(run_id), newest=True, limit=1)
            note([event.id for event in self._store.read(newest) if event.kind != "erased"])
            if result.pending_prompt is not None:
                raise Pause(_within(step, result.pending_prompt))
            if result.reason is not None:
                raise WorkflowError(
                    f"the routine handed over: {result.reason}", place=f"run {result.run_id}"
                )
            if result.status == "cancelled":
                raise WorkflowError("the routine was cancelled", place=f"run {result.run_id}")
            if result.failure is not None:
                told = result.failure
                raise WorkflowError(
                    f"the routine failed: {told.error_type}: {told.message}",
                    place=f"run {result.run_id}, step {told.step_id}",
                )
            return {"output": result.output, "metadata": {"run": result.run_id}}

        return run

    def _run(
        self, routine: str, given: Json, run_id: str, step: str, answers: Mapping[str, Json]
    ) -> RunResult:
        said = {
            name.removeprefix(f"{step}/"): answer
            for name, answer in answers.items()
            if name.startswith(f"{step}/")
        }
        options: RunOptions = {
            "answers": said,
            "allow": self._allow,
            "is_held": True,
            "subject": self._subject,
        }
        if not self._store.head(run_stream(run_id))[0]:
            with opened(self._store, routine) as package:
                return run_routine(
                    package, given, self._tools, store=self._store, run_id=run_id, **options
                )
        past = read_run(self._store, run_id)
        retry = self._retry and run_id not in self._retried and not retry_problem(past)
        if past.is_over and not retry:
            return past.result()
        self._retried.add(run_id)
        return resume_run(self._store, run_id, self._tools, retry=retry, **options)


def _within(step: str, prompt: PendingPrompt) -> PendingPrompt:
    """Return the prompt of an inner routine as the workflow asks it."""
    return msgspec.structs.replace(prompt, step_id=f"{step}/{prompt.step_id}")


def no_source(kind: str) -> UsageError:
    """Return the error for a need that only a Memory can meet."""
    return UsageError(
        f"`{kind}` needs a Memory",
        place=f"needs, {kind}",
        fix="run the workflow with Memory.workflow, or `em workflow run`",
    )


class Binding:
    """The tools of one run, by the names of its steps. Raises if a tool is missing."""

    def __init__(
        self,
        workflows: "Workflows",
        plan: Plan,
        allow: AllowSettings,
        secrets: Secrets,
        answers: Mapping[str, Json],
        servers: Servers,
        registered: Mapping[str, Tool],
        subject: str | None,
        *,
        retry: bool,
    ) -> None:
        self._workflows = workflows
        self._subject = subject
        self._retry = retry
        self._registered = registered
        self._plan = plan
        self._allow = allow
        self._secrets = secrets
        self._answers = answers
        self._servers = servers
        # Set once there is one: some tools need the run that they are called in.
        self.conductor: Conductor | None = None
        self.tools = {step.name: self._bound(step) for step in plan.steps}

    def _bound(self, step: PlannedStep) -> Tool:
        found = self._find(step)
        found.effect = _effect(step.definition.effect, found.effect)
        return found

    def _find(self, step: PlannedStep) -> Tool:
        if step.name in self._registered:
            self._allowed(step)
            return self._registered[step.name]
        name, allow = step.definition.tool, self._allowed(step)
        made = declared_tools(
            self._written(step, allow), {step.name}, allow, self._secrets, self._servers
        )
        if step.name in made:
            return made[step.name]
        if name in BUILT_IN:
            return self._built_in(step, name, allow)
        known = {**dict.fromkeys(BUILT_IN), **dict.fromkeys(self._workflows.tools)}
        error = missing_tool(name, known)
        raise WorkflowError(error.message, place=f"step {step.name}, field tool", fix=error.fix)

    def _written(self, step: PlannedStep, allow: AllowSettings) -> Routine:
        """Return the routine that declares a step's tool: the workflow's, or em.yaml's server."""
        routine = self._plan.program.routine
        if not step.definition.tool.startswith("mcp__") or routine.says_how(step.name):
            return routine
        spec = spec_of(routine, step.definition.tool, allow)
        return routine if spec is None else Routine(name="", tools=[spec.renamed(step.name)])

    def _built_in(self, step: PlannedStep, name: str, allow: AllowSettings) -> Tool:
        if name == ASK:
            return Tool(step.name, lambda: self._run.answer_of(step.name), "read")
        if name == "recall":
            return Tool(step.name, self._recalling(step.name), "read")
        if name == ROUTINE:
            workflows = self._workflows
            routines = InnerRoutines(
                workflows.store, workflows.tools, allow, self._subject, retry=self._retry
            )
            run = routines.runner(
                step.name, self._answers, lambda ids: self._run.note_sources(step.name, ids)
            )
            return Tool(step.name, run, "write")
        assert name in ASKS_A_MODEL
        self._check_key(step)
        models = self._workflows.models
        return Tool(step.name, models.ask if name == "model_call" else models.ask_several, "read")

    @property
    def _run(self) -> "Conductor":
        assert self.conductor is not None
        return self.conductor

    def _recalling(self, step: str) -> Any:
        def recall(
            query: Any,
            k: int = 5,
            subject: str | None = None,
            everybody: bool = False,
            **only: Any,
        ) -> Any:
            about = self._subject if subject is None else subject
            found = self._workflows.recall(query, k, None if everybody else about, **only)
            self._run.note_sources(step, found.from_events)
            return found.value

        return recall

    def _check_key(self, step: PlannedStep) -> None:
        """Raise for a missing API key before the first step, if the model is known by then."""
        inputs = step.definition.inputs
        who = [inputs.get("provider"), inputs.get("model")]
        if step.definition.tool == "model_call" and not any("{" in str(one) for one in who):
            self._workflows.models.client(*who)

    def _allowed(self, step: PlannedStep) -> AllowSettings:
        """Return what a step may use: its own `permissions` if allowed, else all that is."""
        asked = step.definition.permissions
        if asked is None:
            return self._allow
        for field in ("commands", "hosts", "env"):
            for name in getattr(asked, field):
                if name not in getattr(self._allow, field):
                    what = next(one for one, known in FIELDS.items() if known == field)
                    error: NotAllowed = refused(what, name)
                    error.place = f"step {step.name}, field permissions.{field}"
                    raise error
        return asked


def _effect(step: Effect | None, tool: Effect | None) -> Effect:
    """Return the effect of a step; in doubt it is a write."""
    if "write" in (step, tool):
        return "write"
    return "read" if "read" in (step, tool) else "write"
