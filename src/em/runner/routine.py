"""Routine: a trace compiled into steps with references; runs without a model.

`Program` is a routine whose expressions are compiled, so that a step costs little more than its
call.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

import msgspec

from em.errors import InvalidRoutine
from em.redaction.names import is_secret_name
from em.runner.expressions.functions import ABSENT, OMITTED
from em.runner.expressions.language import Evaluate, compile_expression, compile_value
from em.settings import McpServer
from em.values.call import Effect
from em.values.canonical import Json
from em.values.json_schema import by_names, matcher
from em.values.leaves import texts

OnError = Literal["fail", "continue"]
FieldType = Literal[
    "text", "number", "integer", "confirm", "select", "multiselect", "secret", "json"
]


class Retry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Repeat a step that fails. `errors`: only if the error's type or text contains one of them.

    safe: a write may be made twice; else it is repeated only where nothing was done.
    """

    attempts: Annotated[int, msgspec.Meta(ge=1, le=100)] = 3
    backoff: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 0.1
    errors: Sequence[str] = ()
    safe: bool = False


class Checks(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Expressions that must be true before and after a step."""

    pre: Sequence[str] = ()
    post: Sequence[str] = ()


class Default(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`on_error: {default: …}`: go on with this value."""

    default: Any


class PromptField(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One thing to ask a person."""

    name: str
    type: FieldType = "text"
    label: str = ""
    options: Sequence[Any] = ()
    required: bool = True
    default: Any = None

    def __post_init__(self) -> None:
        """Check that a choice has options, and that the name is not an expression."""
        if "{{" in self.name or "{%" in self.name:
            raise ValueError("the name of a field can't be an expression")
        if self.type in ("select", "multiselect") and not self.options:
            raise ValueError(f"a {self.type} field needs options")


class Prompt(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What to ask a person."""

    message: str
    fields: Sequence[PromptField] = ()


class _Common(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag_field="type",
):
    """The fields of every step; `NO_USE` names those that a type of step ignores."""

    NO_USE: ClassVar[tuple[str, ...]] = ()

    id: str
    description: str = ""
    when: str | None = None
    save_as: str | None = None
    for_each: Any = None
    as_: str = msgspec.field(default="item", name="as")
    on_error: OnError | Default = "fail"
    expect: Json | None = None
    """A JSON Schema for the result. What does not fit it is a failed check."""
    held: Annotated[str, msgspec.Meta(pattern=r"^(\d+/\d+)?$")] = ""
    """In how many recordings the check or the expectation held, as `14/14`; for the reader."""

    def __post_init__(self) -> None:
        """Refuse a field that would be ignored: its author expects an effect."""
        for name in self.NO_USE:
            if getattr(self, name) != _DEFAULTS[name]:
                kind = self.__struct_config__.tag
                raise ValueError(f"a `{kind}` step can't have `{name}`")


_PLAIN_ONLY = ("for_each", "on_error", "expect", "held")
"""What a step that is no call and no check can't have."""
_DEFAULTS = {field.name: field.default for field in msgspec.structs.fields(_Common)}


class _CallStep(_Common, frozen=True, kw_only=True):
    """The fields of a step that calls something."""

    retry: Retry | None = None
    timeout: Annotated[float, msgspec.Meta(gt=0, le=86_400)] | None = None
    checks: Checks | None = None
    effect: Effect | None = None
    idempotency_key: str | None = None


class ToolStep(_CallStep, frozen=True, kw_only=True, tag="tool.call"):
    """Call a tool."""

    tool: str
    args: Json = {}


class UdfStep(_CallStep, frozen=True, kw_only=True, tag="udf.call"):
    """Call a function of udf.py."""

    function: str
    args: Json = {}


class AssertStep(_Common, frozen=True, kw_only=True, tag="assert"):
    """Fail unless an expression is true."""

    NO_USE = ("expect",)

    check: str
    message: str = ""


class LetStep(_Common, frozen=True, kw_only=True, tag="let"):
    """Name a value."""

    NO_USE = ("for_each",)

    value: Any

    def __post_init__(self) -> None:
        """Check that the value gets a name."""
        super().__post_init__()
        if self.save_as is None:
            raise ValueError("a `let` step needs `save_as`: the name of the value")


class ForEachStep(_Common, frozen=True, kw_only=True, tag="for_each"):
    """Repeat a block of steps for each row of one or several lists side by side.

    over: by name, a bare expression that gives a list. In a turn, these names and those that the
    block saves are local; the result is a list with one record of them per turn.
    max: more rows than this are a failed check.
    """

    NO_USE = ("for_each", "on_error")

    over: dict[str, str]
    steps: Sequence["Step"]
    max: Annotated[int, msgspec.Meta(ge=0)] | None = None

    def __post_init__(self) -> None:
        """Check that there are lists, and steps that can be repeated."""
        super().__post_init__()
        if not self.over or not self.steps:
            raise ValueError("a `for_each` step needs at least one list in `over`, and `steps`")
        for step in self.steps:
            if not isinstance(step, ToolStep | UdfStep | AssertStep | LetStep | ForEachStep):
                kind = step.__struct_config__.tag
                raise TypeError(f"a `{kind}` step can't stand in the block of a `for_each` step")

    @property
    def saved_names(self) -> list[str]:
        """The names of a turn, in their order: those of `over`, and those that its steps save."""
        saved = [step.save_as for step in self.steps if step.save_as is not None]
        return list(dict.fromkeys([*self.over, *saved]))


class PromptStep(_Common, frozen=True, kw_only=True, tag="prompt.user"):
    """Ask a person."""

    NO_USE = _PLAIN_ONLY

    prompt: Prompt


class ReturnStep(_Common, frozen=True, kw_only=True, tag="return"):
    """End with a value."""

    NO_USE = _PLAIN_ONLY

    value: Any = None


Step = ToolStep | UdfStep | AssertStep | LetStep | ForEachStep | PromptStep | ReturnStep


def walked(steps: Iterable[Step]) -> Iterator[Step]:
    """Yield every step in the order of the text: a block, then the steps in it."""
    for step in steps:
        yield step
        if isinstance(step, ForEachStep):
            yield from walked(step.steps)


class HttpCall(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """An HTTP request as a tool. Path, query, headers and content may hold expressions."""

    url: str
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] = "GET"
    query: Json = {}
    headers: dict[str, str] = {}
    json: Any = None
    body: str | None = None

    def __post_init__(self) -> None:
        """Check that the host is written out, not computed."""
        address = urlsplit(self.url.partition("{{")[0].partition("{%")[0])
        if address.scheme not in ("http", "https") or not address.netloc:
            raise ValueError("`url` must begin with http:// or https:// and a host")
        rest_is_path = "/" in self.url.partition("://")[2].partition("{")[0]
        address.port  # noqa: B018 - raises for one that is no number
        if "@" in address.netloc or ("{" in self.url and not rest_is_path):
            raise ValueError(
                "the host of `url` must be written out, without expressions and password"
            )
        if "{%" in self.url:
            raise ValueError("`url` can hold {{ }} only, not {% %}")
        if self.json is not None and self.body is not None:
            raise ValueError("`json` and `body` exclude each other")


_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]")


class ToolSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A tool that the routine calls. With `command`, `shell`, `http` or `mcp` it needs no code.

    With `mcp` it also names the server: `mcp__NAME__TOOL` is that server's TOOL.
    shell: a shell command with blanks, see `em.shell.form`. via: the tool that ran it when it was
    recorded; it runs it again if it is registered. exit_codes: how the shell command ends other
    than with 0; with one of these, all that it prints is its result, and with 0 it fails.
    only_new: the files that it writes with `>` must not be there yet.
    """

    name: str
    description: str = ""
    args_schema: Json | None = None
    result_schema: Json | None = None
    effect: Effect | None = None
    effect_inferred: bool = False
    command: Sequence[str] | None = None
    env: Sequence[str] = ()
    shell: str | None = None
    via: str = ""
    exit_codes: Sequence[int] = ()
    only_new: bool = False
    http: HttpCall | None = None
    mcp: McpServer | None = None
    output: Literal["text", "json", "lines"] | None = None
    timeout: Annotated[float, msgspec.Meta(gt=0, le=86_400)] | None = None

    def __post_init__(self) -> None:
        """Check that there is one way to call it, and that a program is written out."""
        ways = (self.command, self.shell, self.http, self.mcp)
        if sum(how is not None for how in ways) > 1:
            raise ValueError("`command`, `shell`, `http` and `mcp` exclude each other")
        if (self.via or self.exit_codes or self.only_new) and self.shell is None:
            raise ValueError("`via`, `exit_codes` and `only_new` need a `shell` command")
        if self.mcp is not None:
            if self.env:
                raise ValueError("write `env` of a server within `mcp`")
        elif self.command is not None:
            if not self.command or not self.command[0]:
                raise ValueError("`command` must begin with a program")
            if "{{" in self.command[0] or "{%" in self.command[0]:
                raise ValueError("the program of `command` can't be an expression")
        elif self.env or (not self.says_how and (self.output or self.timeout)):
            raise ValueError(
                "`env` needs a `command`; `output` and `timeout` need a `command`, `shell`, `http`"
                " or `mcp`"
            )

    @property
    def says_how(self) -> bool:
        """Return whether it can be called without code."""
        ways = (self.command, self.shell, self.http, self.mcp)
        return any(how is not None for how in ways)

    def of_server(self, name: str) -> "ToolSpec | None":
        """Return the tool `mcp__NAME__TOOL` if this is the server NAME, else None."""
        own = f"mcp__{_NOT_IN_A_NAME.sub('_', self.name)}__"
        if self.mcp is None or not name.startswith(own) or name == own:
            return None
        server = msgspec.structs.replace(self.mcp, tool=name.removeprefix(own))
        return msgspec.structs.replace(self, name=name, mcp=server, args_schema=None, effect=None)

    @property
    def tool_of_server(self) -> str:
        """The server's own name of this tool."""
        if self.mcp is not None and self.mcp.tool:
            return self.mcp.tool
        server, sign, tool = self.name.removeprefix("mcp__").partition("__")
        return tool if self.name.startswith("mcp__") and sign and server and tool else self.name

    def renamed(self, name: str) -> "ToolSpec":
        """Return the same tool under another name; the server's own name of it stays."""
        server = self.mcp
        if server is not None:
            server = msgspec.structs.replace(server, tool=self.tool_of_server)
        return msgspec.structs.replace(self, name=name, mcp=server)

    @property
    def known_effect(self) -> Effect | None:
        """The declared effect; an HTTP GET or HEAD is a read."""
        if self.effect is None and self.http is not None and self.http.method in ("GET", "HEAD"):
            return "read"
        return self.effect


class Secret(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A secret, read from the environment when the routine runs and never stored."""

    name: str
    env: str = ""
    description: str = ""

    @property
    def variable(self) -> str:
        """The environment variable that holds it."""
        return self.env or f"EM_SECRET_{self.name.upper()}"


class Review(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """What a person said when a routine was compiled; compiling it again keeps to it.

    inputs: arguments that are inputs, though nothing showed it. constants: inputs that are always
    as recorded.
    """

    inputs: Sequence[str] = ()
    constants: Sequence[str] = ()


NO_REVIEW = Review()


class Routine(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Steps with references, the tools they call, and the shape of input and output."""

    version: Literal["1"] = "1"
    name: str
    description: str = ""
    checks: Literal["hand_over"] | None = None
    """What a check that fails before the first write does: end the run, and hand over."""
    tools: Sequence[ToolSpec] = ()
    input_schema: Json | None = None
    requests: Sequence[str] = ()
    """Requests in words, with `{holes}` for inputs; a text that is one of them gives the inputs."""
    output_schema: Json | None = None
    secrets: Sequence[Secret] = ()
    review: Review = NO_REVIEW
    struck: Sequence[str] = ()
    """Checks that a person struck, as texts: compiling the routine again leaves them out."""
    steps: Sequence[Step] = ()

    @property
    def called_tools(self) -> set[str]:
        """The tools that its steps call."""
        return {step.tool for step in self.all_steps if isinstance(step, ToolStep)}

    @property
    def all_steps(self) -> Iterator[Step]:
        """The steps, also those in blocks, in the order of the text."""
        return walked(self.steps)

    def says_how(self, name: str, servers: Sequence[ToolSpec] = ()) -> ToolSpec | None:
        """Return how a tool is called without code: as declared, or as a tool of a server.

        servers: known servers beside those that the routine declares.
        """
        own = next((tool for tool in self.tools if tool.name == name), None)
        if own is not None and own.says_how:
            return own
        for server in (*self.tools, *servers):
            found = server.of_server(name)
            if found is not None and own is not None:
                # The tool's own fields count; the server says how to reach it.
                return msgspec.structs.replace(
                    own, mcp=found.mcp, output=server.output, timeout=server.timeout
                )
            if found is not None:
                return found
        return None


_NO_CALL = UdfStep(id="", function="")


class CompiledStep:
    """A step with its expressions compiled.

    `kind` is tool, udf, assert, let, for_each, prompt or return.
    """

    def __init__(self, step: Step, spec: ToolSpec | None) -> None:
        place = f"step {step.id}"
        self.source = step
        self.id = step.id
        self.save_as = step.save_as
        self.when = _expression(step.when, f"{place}, field when")
        self.for_each = _value(step.for_each, f"{place}, field for_each")
        self.as_name = step.as_
        self.on_error = step.on_error
        self.expect = None if step.expect is None else matcher(step.expect)
        call = step if isinstance(step, _CallStep) else _NO_CALL
        self.retry = call.retry
        self.timeout = call.timeout
        checks = call.checks or Checks()
        self.pre = _expressions(checks.pre, f"{place}, field checks.pre")
        self.post = _expressions(checks.post, f"{place}, field checks.post")
        self.key = _value(call.idempotency_key, f"{place}, field idempotency_key")
        self.is_write = _is_write(step, spec)
        # The routine does not declare the effect; the tool may.
        self.is_in_doubt = call.effect is None and (spec is None or spec.known_effect is None)
        self.args_schema = spec.args_schema if spec else None
        self.result_schema = spec.result_schema if spec else None
        # A prompt that a person answers before the call; only steps of a workflow have one.
        self.gate: CompiledStep | None = None
        self.kind = "return"
        self.target = ""
        self.args: Evaluate = _nothing
        # Of the arguments that are given in any case.
        self.names: frozenset[str] = frozenset()
        # Whether an argument has the name of a secret.
        self.secret_args = False
        self.check: Evaluate | None = None
        self.message: Evaluate = _nothing
        self.prompt: Evaluate | None = None
        self.value: Evaluate = _nothing
        # The lists of a block, the most rows that it takes, and its steps.
        self.over: dict[str, Evaluate] = {}
        self.most: int | None = None
        self.steps: list[CompiledStep] = []
        self.is_in_block = False
        self._take_details(step, place)
        # Only a call and a name for its result: the common case has a fast path.
        self.is_plain = self.kind in ("tool", "udf") and not (
            self.when
            or self.for_each
            or self.retry
            or self.pre
            or self.post
            or self.timeout
            or self.key
        )
        if self.args_schema is not None or self.result_schema is not None:
            self.is_plain = False

    def _take_details(self, step: Step, place: str) -> None:
        if isinstance(step, ToolStep | UdfStep):
            self.kind = "tool" if isinstance(step, ToolStep) else "udf"
            self.target = step.tool if isinstance(step, ToolStep) else step.function
            self.args = _arguments(step.args, f"{place}, field args")
            self.names = frozenset(n for n, one in step.args.items() if OMITTED not in str(one))
            self.secret_args = any(map(is_secret_name, step.args))
        elif isinstance(step, AssertStep):
            self.kind = "assert"
            self.check = compile_expression(step.check, f"{place}, field check")
            self.message = compile_value(step.message, f"{place}, field message")
        elif isinstance(step, LetStep):
            self.kind = "let"
            self.value = compile_value(step.value, f"{place}, field value")
        elif isinstance(step, ForEachStep):
            self.kind = "for_each"
            self.most = step.max
            self.over = {
                name: compile_expression(text, f"{place}, field over.{name}")
                for name, text in step.over.items()
            }
        elif isinstance(step, PromptStep):
            self.kind = "prompt"
            prompt = msgspec.to_builtins(step.prompt)
            self.prompt = compile_value(prompt, f"{place}, field prompt")
        elif isinstance(step, ReturnStep):
            self.value = compile_value(step.value, f"{place}, field value")


class Program:
    """A routine, ready to run."""

    __slots__ = ("declared_names", "outer_steps", "routine", "steps", "tool_names", "udf_names")

    def __init__(self, routine: Routine) -> None:
        self.routine = routine
        # Without those that are made in blocks.
        self.outer_steps = self._compiled(routine.steps)
        self.steps = list(_all_of(self.outer_steps))
        _check_ids(self.steps)
        self.tool_names = routine.called_tools
        # The called tools that need no code.
        self.declared_names = {
            name for name in self.tool_names if routine.says_how(name) is not None
        }
        self.udf_names = {step.target for step in self.steps if step.kind == "udf"}

    def _compiled(self, steps: Iterable[Step]) -> list[CompiledStep]:
        """Return steps with their expressions compiled, and with them those of their blocks."""
        specs = {tool.name: tool for tool in self.routine.tools}
        found = []
        for step in steps:
            spec = specs.get(step.tool) if isinstance(step, ToolStep) else None
            made = CompiledStep(step, spec)
            if isinstance(step, ForEachStep):
                made.steps = self._compiled(step.steps)
                for inner in made.steps:
                    inner.is_in_block = True
            found.append(made)
        return found

    def by_names(self, given: Json) -> Json:
        """Return inputs under the names that the routine has for them."""
        schema = self.routine.input_schema
        return given if schema is None else by_names(schema, given)


def _all_of(steps: Iterable[CompiledStep]) -> Iterator[CompiledStep]:
    for step in steps:
        yield step
        yield from _all_of(step.steps)


def _check_ids(steps: list[CompiledStep]) -> None:
    """Raise if two steps have the same id: the journal identifies steps by it."""
    seen: set[str] = set()
    for step in steps:
        if step.id in seen:
            raise InvalidRoutine(f"two steps have the id {step.id!r}", place=f"step {step.id}")
        seen.add(step.id)


def _is_write(step: Step, spec: ToolSpec | None) -> bool:
    """Return whether a step is a write: in doubt yes, a function of udf.py no."""
    if isinstance(step, _CallStep) and step.effect is not None:
        return step.effect == "write"
    return isinstance(step, ToolStep) and (spec is None or spec.known_effect != "read")


def _arguments(args: Json, place: str) -> Evaluate:
    """Compile arguments; those that an expression says to omit are left out."""
    evaluate = compile_value(args, place)
    if not any(OMITTED in text for text in texts(args)):
        return evaluate
    return lambda scope: {
        name: value for name, value in evaluate(scope).items() if value is not ABSENT
    }


def _nothing(_scope: Any) -> Any:
    return None


def _value(source: Any, place: str) -> Evaluate | None:
    return None if source is None else compile_value(source, place)


def _expression(source: str | None, place: str) -> Evaluate | None:
    return None if source is None else compile_expression(source, place)


def _expressions(sources: Sequence[str], place: str) -> list[tuple[str, Evaluate]]:
    return [
        (source, compile_expression(source, f"{place}[{n}]")) for n, source in enumerate(sources)
    ]
