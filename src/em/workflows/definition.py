"""A workflow as its author writes it: parameters, and steps that name the context they need.

`check_params` checks and converts the parameters of a run.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from em.errors import BadBody, InputError, InvalidWorkflow, NotFound
from em.runner.routine import Retry, ToolSpec
from em.settings import FILE, AllowSettings, Settings, memory_folder
from em.values.call import Effect
from em.values.canonical import Json, canonical
from em.values.files import read_regular
from em.values.leaves import texts
from em.values.mismatch import closest, mismatch
from em.values.strict_yaml import load_yaml
from em.workflows.needs import as_variable

ParamType = Literal["string", "integer", "number", "boolean", "list", "object"]
OnFailure = Literal["abort_chain", "continue"]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]
MODEL_CALL = "model_call"
WIDTH = 8
"""How many steps of a parallel workflow run side by side by default."""


class Param(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One parameter; without a default it is required."""

    name: str
    type: ParamType | None = None
    default: Any = msgspec.UNSET
    description: str = ""
    options: Sequence[Any] = ()

    @property
    def is_required(self) -> bool:
        """Whether a run must pass it."""
        return self.default is msgspec.UNSET


class StepMemory(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a step needs from earlier steps, the run or the memory."""

    needs: Sequence[str] = ()


class Gate(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A person must agree before the step runs."""

    message: str = ""


class StepDef(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True
):
    """One step."""

    name: str
    tool: str = MODEL_CALL
    description: str = ""
    inputs: Json = {}
    memory: StepMemory = StepMemory()
    when: str | bool | None = None
    for_each: Any = None
    as_: str = msgspec.field(default="item", name="as")
    gate: bool | str | Gate | None = None
    on_failure: OnFailure = "abort_chain"
    retry: int | Retry | None = None
    timeout: Seconds | None = None
    permissions: AllowSettings | None = None
    depends_on: str | Sequence[str] = ()
    effect: Effect | None = None
    idempotency_key: str | None = None

    def __post_init__(self) -> None:
        """Refuse fields that make no sense."""
        if not self.name or "?" in self.name or "[" in self.name:
            raise ValueError("a step's name must be a word without ? and [")
        if isinstance(self.retry, int) and not 1 <= self.retry <= 100:
            raise ValueError("`retry` must be 1 to 100 attempts")
        if self.tool == "ask" and (self.for_each is not None or self.gate):
            raise ValueError("`ask` can't have `for_each` or `gate`")

    @property
    def waits_for(self) -> tuple[str, ...]:
        """The steps of `depends_on`."""
        return (self.depends_on,) if isinstance(self.depends_on, str) else tuple(self.depends_on)

    @property
    def variable(self) -> str:
        """Its name as a template can use it."""
        return re.sub(r"\W", "_", self.name)


class WorkflowDef(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True
):
    """A workflow. `parallel` is true, or how many steps at most run side by side."""

    name: str
    description: str = ""
    params: Any = None
    steps: Sequence[StepDef] = ()
    parallel: bool | Annotated[int, msgspec.Meta(ge=1, le=256)] = False
    strict: bool = False
    timeout: Seconds | None = None
    tools: Sequence[ToolSpec] = ()

    def __post_init__(self) -> None:
        """Read the parameters, so that their problems are found with the others."""
        read_params(self.params)

    @property
    def parameters(self) -> list[Param]:
        """The parameters, in their order."""
        return read_params(self.params)

    @property
    def width(self) -> int:
        """How many steps run side by side; 1 if they run in the order of the file."""
        if self.parallel is True:
            return WIDTH
        return int(self.parallel) or 1

    @property
    def is_parallel(self) -> bool:
        """Whether steps run as soon as their needs are met."""
        return self.parallel is not False

    @property
    def hash(self) -> str:
        """The hash of the definition."""
        return hashlib.sha256(canonical(msgspec.to_builtins(self), "workflow")[0]).hexdigest()


def read_params(value: Any) -> list[Param]:
    """Read parameters from a list of names and defaults, or from a mapping."""
    if value is None:
        return []
    pairs = list(_pairs(value))
    names = [name for name, _ in pairs]
    for name in names:
        if not isinstance(name, str) or not name.isidentifier():
            raise ValueError(f"a parameter's name must be an identifier, got {name!r}")
        if names.count(name) > 1:
            raise ValueError(f"the parameter {name!r} is given twice")
    return [_param(name, said) for name, said in pairs]


def _pairs(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        yield from value.items()
        return
    if not isinstance(value, list):
        raise ValueError("`params` must be a list of names, or names with their defaults")  # noqa: TRY004 - msgspec tells a ValueError with its place
    for item in value:
        if isinstance(item, Mapping):
            yield from item.items()
        else:
            yield item, msgspec.UNSET


_SAID = frozenset({"type", "default", "description", "options"})


def _param(name: str, said: Any) -> Param:
    if isinstance(said, dict) and said and said.keys() <= _SAID:
        try:
            return msgspec.convert({"name": name, **said}, Param)
        except msgspec.ValidationError as error:
            raise ValueError(f"the parameter {name!r}: {error}") from None
    return Param(name=name, default=said, type=type_of(said))


_TYPES: Mapping[ParamType, Any] = {
    "boolean": bool,
    "integer": int,
    "number": int | float,
    "string": str,
    "list": list,
    "object": dict,
}


def type_of(value: Any) -> ParamType | None:
    """Return the parameter type of a default."""
    return next((name for name, kind in _TYPES.items() if isinstance(value, kind)), None)


def said(value: Json) -> Json:
    """Drop names without a value."""
    return {name: item for name, item in value.items() if item is not None}


MAIN_LLM = "main_llm"
_EXPRESSION = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)
_STEP = re.compile(r"(?<![\w.])steps\.(\w+)\.outputs?\b")
_BARE = ("when", "for_each")
"""Fields that may be an expression without brackets."""


def in_one_form(workflow: Json, main_llm: Any = None) -> Json:
    """Return a workflow whose author spelt it as other documents do in the form that is read.

    `{{ steps.research.output }}` is `{{ memory.research_output }}` with the need for it, `queries`
    of `parallel_query` are its `models`, and `main_llm` of a file is the provider and the model of
    each `model_call` that names none. What has another shape is left as it is.
    """
    steps = workflow.get("steps")
    if not isinstance(steps, list):
        return workflow
    return {**workflow, "steps": [_step(one, main_llm) for one in steps]}


def _step(step: Any, main_llm: Any) -> Any:
    if not isinstance(step, dict):
        return step
    step = _with_model(_with_models(step), main_llm)
    named = [name for text in texts(step) for name in _steps_in(text)]
    named += [n for field in _BARE for n in _STEP.findall(_text(step.get(field)))]
    if not named:
        return step
    step = {name: _rewritten(value, bare=name in _BARE) for name, value in step.items()}
    memory = step.get("memory") or {}
    needs = memory.get("needs") if isinstance(memory, dict) else None
    if not isinstance(memory, dict) or not isinstance(needs, list | None):
        return step
    known = set(needs or ())
    new = [f"tool_output({name})" for name in dict.fromkeys(named)]
    step["memory"] = {**memory, "needs": [*(needs or ()), *(n for n in new if n not in known)]}
    return step


def _steps_in(text: str) -> list[str]:
    return [name for part in _EXPRESSION.findall(text) for name in _STEP.findall(part)]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _rewritten(value: Any, *, bare: bool = False) -> Any:
    if isinstance(value, str):
        if bare and "{" not in value:
            return _STEP.sub(_variable, value)
        return _EXPRESSION.sub(lambda part: _STEP.sub(_variable, part[0]), value)
    if isinstance(value, dict):
        return {name: _rewritten(one) for name, one in value.items()}
    return [_rewritten(one) for one in value] if isinstance(value, list) else value


def _variable(found: re.Match[str]) -> str:
    return f"memory.{as_variable(found[1])}_output"


def _with_models(step: Json) -> Json:
    """Return `queries` of a `parallel_query` as its `models`."""
    inputs = step.get("inputs")
    if step.get("tool") != "parallel_query" or not isinstance(inputs, dict):
        return step
    queries = inputs.get("queries")
    if not isinstance(queries, list) or not queries or "models" in inputs:
        return step
    if not all(isinstance(one, Mapping) and "prompt_template" in one for one in queries):
        return step
    models = [
        {"prompt" if name == "prompt_template" else name: value for name, value in one.items()}
        for one in queries
    ]
    rest = {name: value for name, value in inputs.items() if name != "queries"}
    return {**step, "inputs": {"prompt": models[0]["prompt"], **rest, "models": models}}


def _with_model(step: Json, main_llm: Any) -> Json:
    inputs = step.get("inputs") or {}
    is_call = step.get("tool", "model_call") == "model_call" and isinstance(inputs, dict)
    if not is_call or not isinstance(main_llm, Mapping) or {"provider", "model"} & inputs.keys():
        return step
    given = {name: main_llm[name] for name in ("provider", "model") if main_llm.get(name)}
    return {**step, "inputs": {**given, **inputs}}


def read_workflow(value: Json, place: str) -> WorkflowDef:
    """Convert a plain value to a workflow. Raise the first problem."""
    try:
        return msgspec.convert(in_one_form(said(value)), WorkflowDef)
    except msgspec.ValidationError as error:
        found = mismatch(error)
        raise InvalidWorkflow(
            found.message,
            place=found.place(place, word=""),
            fix="`em workflow validate` lists everything that is wrong with it",
        ) from None


FIELD = "workflows"


MOST_FILES, MOST_WORKFLOWS = 32, 256
"""How many texts of files, and workflows in them, are read once."""


@lru_cache(maxsize=MOST_FILES)
def _values(text: bytes, place: str) -> dict[str, Json]:
    """Return the workflows of a file's text. The text itself is the key, so none is ever stale."""
    value = load_yaml(text, place, InvalidWorkflow)
    found = workflows_in(value, place)
    if Path(place).name == FILE or not isinstance(value, dict):
        return found  # there `main_llm` is a setting
    return {name: in_one_form(one, value.get(MAIN_LLM)) for name, one in found.items()}


@lru_cache(maxsize=MOST_WORKFLOWS)
def _workflow(text: bytes, place: str, name: str) -> WorkflowDef:
    value = {**_values(text, place)[name], "name": name}
    return read_workflow(value, f"{place}, workflow {name}")


class WorkflowFile:
    """The workflows of one file, by name, as they are written.

    The file is read each time. A text that was read before is not parsed again, whoever asks.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = Path(path) if path is not None else memory_folder() / FILE
        self._named = path is not None

    @property
    def place(self) -> str:
        """The file as errors name it."""
        return str(self.path)

    def text(self) -> bytes:
        """Read the file; empty if there is no em.yaml."""
        try:
            return read_regular(self.path)
        except FileNotFoundError:
            if not self._named:
                return b""
            raise InvalidWorkflow("this file does not exist", place=self.place) from None
        except OSError as error:
            raise InvalidWorkflow(f"it can't be read: {error.strerror}", place=self.place) from None

    def values(self) -> dict[str, Json]:
        """Return each workflow as its plain value."""
        return dict(_values(self.text(), self.place))

    def workflow(self, name: str) -> WorkflowDef:
        """Return the workflow of that name. Raise its first problem."""
        text = self.text()
        values = _values(text, self.place)
        if name not in values:
            there = f"there are: {', '.join(values)}" if values else self._none()
            raise NotFound(
                f"there is no workflow {name!r}",
                place=self.place,
                fix=closest(name, values) or there,
            )
        return _workflow(text, self.place, name)

    def _none(self) -> str:
        return f"it has none; write them under `{FIELD}:`" + (
            "" if self._named else ", or name their file (--file)"
        )


def workflows_in(value: Any, place: str) -> dict[str, Json]:
    """Return the workflows of a parsed file."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidWorkflow(
            "a file of workflows must be a mapping of names with values",
            place=place,
            fix=f"write `{FIELD}:`",
        )
    known = (*Settings.__struct_fields__, MAIN_LLM)
    for name in value:
        if name not in known:
            raise InvalidWorkflow(
                f"unknown field {name!r} in a file of workflows",
                place=place,
                fix=closest(str(name), known) or f"write `{FIELD}:`",
            )
    found = value.get(FIELD) or {}
    if not isinstance(found, dict) or not all(isinstance(one, dict) for one in found.values()):
        raise InvalidWorkflow(
            "workflows must be names, each with its params and steps", place=f"{place}, {FIELD}"
        )
    return {str(name): one for name, one in found.items()}


_WORDS = {"true": True, "yes": True, "false": False, "no": False}


def check_params(workflow: WorkflowDef, given: Mapping[str, Any]) -> Json:
    """Check and convert the parameters of a run; fill in defaults."""
    known = {param.name: param for param in workflow.parameters}
    place = f"workflow {workflow.name}, params"
    for name in given:
        if name not in known:
            raise InputError(
                f"there is no parameter {name!r}",
                place=place,
                fix=closest(str(name), known) or f"there are: {', '.join(known) or 'none'}",
            )
    missing = [name for name, param in known.items() if param.is_required and name not in given]
    if missing:
        raise InputError(
            f"the parameter {missing[0]!r} is missing",
            place=place,
            fix=f"pass it: --param {missing[0]}=…, or params={{{missing[0]!r}: …}}",
        )
    params = {
        name: _checked(param, given[name], f"{place}.{name}") if name in given else param.default
        for name, param in known.items()
    }
    try:
        # Nested as deeply as in the journal.
        return dict(canonical([params], "params")[1][0])
    except BadBody as error:
        raise InputError(
            f"a parameter can't be stored: {error.message}",
            place=place,
            fix="pass plain values (numbers, texts, lists, mappings)",
        ) from None


def typed_params(workflow: WorkflowDef, words: Mapping[str, str]) -> Json:
    """Return parameters that were typed on a command line, where everything is a text.

    `true` and `false` are booleans where no type is declared: the text `false` would let a `when`
    pass. `check_params` converts the others to what is declared.
    """
    open_ones = {param.name for param in workflow.parameters if param.type is None}
    booleans = {"true": True, "false": False}
    return {
        name: booleans.get(word, word) if name in open_ones else word
        for name, word in words.items()
    }


def prompt_of(workflow: WorkflowDef, params: Mapping[str, Any], prompt: str | None) -> str | None:
    """Return the prompt of a run: as passed, or the first required parameter."""
    if prompt is not None:
        return prompt
    required = [param.name for param in workflow.parameters if param.is_required]
    return str(params[required[0]]) if required else None


def _checked(param: Param, value: Any, place: str) -> Any:
    if param.type is not None and value is not None:
        try:
            value = _read(value, param.type)
        except ValueError:
            article = "an" if param.type[0] in "io" else "a"
            message = f"{value!r} is not {article} {param.type}"[:300]
            raise InputError(message, place=place) from None
    if param.options and value not in param.options:
        options = ", ".join(map(str, param.options))
        raise InputError(f"expected one of {options}, got {value!r}"[:300], place=place)
    return value


def _read(value: Any, type_: ParamType) -> Any:
    """Read a value; on a command line everything is a text, and a list has commas or is JSON."""
    if isinstance(value, str) and type_ in ("list", "object"):
        if type_ == "list" and not value.lstrip().startswith("["):
            return [part.strip() for part in value.split(",") if part.strip()]
        return msgspec.json.decode(value, type=_TYPES[type_])
    if type_ == "boolean" and not isinstance(value, bool):
        value = _WORDS.get(str(value).strip().lower(), str(value))
    found = msgspec.convert(value, _TYPES[type_], strict=type_ in ("string", "boolean"))
    if isinstance(found, float) and not isfinite(found):
        raise ValueError("not finite")
    return found
