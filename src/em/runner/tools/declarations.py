"""Tools that a routine declares in YAML: a command, a request, or a tool of an MCP server.

Each value fills exactly its place: one argument of a program, one part of an address. It is never
split, never evaluated again, and never becomes an option.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from em.errors import RoutineError
from em.runner.expressions.functions import SCOPE
from em.runner.expressions.language import (
    Evaluate,
    compile_expression,
    compile_value,
    names_in,
)
from em.runner.routine import HttpCall, Routine, ToolSpec
from em.runner.run import UnknownOutcome
from em.runner.secrets import Secrets
from em.runner.tools import Tool, code_digest
from em.runner.tools.command import CommandFailed, run_command
from em.runner.tools.http import HttpFailed, request
from em.runner.tools.mcp import McpFailed, Servers, value_of
from em.runner.tools.permissions import (
    Environment,
    check_host,
    find_program,
    host_of,
)
from em.runner.tools.readers import NamedInput
from em.settings import AllowSettings, McpServer
from em.trust import content_hash
from em.values.canonical import Json
from em.values.leaves import texts

TIMEOUT = 60.0
"""The timeout in seconds of a declared tool, unless the tool or its step sets one."""

_EXPRESSION = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_ENV = re.compile(r"\benv(?:\.([A-Za-z_]\w*)|\[\s*['\"]([^'\"]+)['\"]\s*\])")
# Setting these could send the request to another host, or with another length, than was checked.
_OWN_HEADERS = frozenset({"host", "content-length", "transfer-encoding", "connection"})

Answer = Callable[[Json, float], Any]


class BadOutput(UnknownOutcome):
    """The output of a declared tool is not in the declared format. The call was made."""


def declared_tools(
    routine: Routine, names: set[str], allow: AllowSettings, secrets: Secrets, servers: Servers
) -> dict[str, Tool]:
    """Make the tools of these names that the routine declares. May raise NotAllowed."""
    tools: dict[str, Tool] = {}
    for name in sorted(names):
        spec = spec_of(routine, name, allow)
        if spec is None:
            continue
        if spec.mcp is not None:
            tools[name] = _server_tool(spec, allow, secrets, servers)
        else:
            tools[name] = _tool(spec, allow, secrets)
        tools[name].digest = content_hash(msgspec.json.encode(spec))
    return tools


def check_made(routine: Routine, name: str, allow: AllowSettings) -> None:
    """Raise if a tool can't be made, as a run does before its first step."""
    from em.runner.tools.coding import coding_tool

    spec = routine.says_how(name)
    if spec is None:
        coding_tool(name, allow)
    elif spec.mcp is None:
        with Servers() as servers:
            declared_tools(routine, {name}, allow, Secrets(), servers)


def found_tools(
    routine: Routine,
    names: set[str],
    registry: Mapping[str, Tool],
    allow: AllowSettings,
    named: NamedInput,
) -> dict[str, Tool]:
    """Return tools that need no declaration: readers, and those of coding agents.

    A shell command whose own tool is registered is run by that one.
    """
    from em.runner.tools.coding import coding_tool
    from em.runner.tools.readers import reader

    tools: dict[str, Tool] = {}
    for name in sorted(names):
        spec = routine.says_how(name)
        if spec is None:
            tool = reader(name, allow, named) or coding_tool(name, allow)
        else:
            tool = through(spec, registry[spec.via]) if spec.via in registry else None
        if tool is not None:
            tools[name] = tool
    return tools


def through(spec: ToolSpec, shell: Tool) -> Tool:
    """Return a shell command as a call of the registered tool that ran it when it was recorded."""
    from em.runner.tools.coding import shell_arguments
    from em.runner.tools.shell import template_of

    template = template_of(spec)

    def call(**args: Any) -> Any:
        return shell.function(**shell_arguments(spec.via, template.filled(args)))

    async def acall(**args: Any) -> Any:
        return await shell.function(**shell_arguments(spec.via, template.filled(args)))

    tool = Tool(spec.name, acall if shell.is_async else call, spec.known_effect)
    own = shell.digest or code_digest(shell.function)
    tool.digest = content_hash(msgspec.json.encode((spec, own)))
    tool.preview = template.filled
    return tool


def spec_of(routine: Routine, name: str, allow: AllowSettings) -> ToolSpec | None:
    """Return how a tool is called: as the routine declares, or as a tool of a server in em.yaml."""
    known = [ToolSpec(name=server, mcp=how) for server, how in allow.mcp.items()]
    return routine.says_how(name, known)


def _with_own(allow: AllowSettings, server: McpServer) -> AllowSettings:
    """Add to what is allowed what a server in em.yaml needs itself."""
    plain = msgspec.structs.replace(server, tool="")
    if plain not in allow.mcp.values():
        return allow
    return allow + AllowSettings(
        commands=list((server.command or ())[:1]),
        hosts=[host_of(urlsplit(server.url))] if server.url else [],
        env=[*server.env],
    )


def argument_names(spec: ToolSpec) -> set[str]:
    """Return the arguments that the expressions of a declared tool use."""
    place = f"tool {spec.name}"
    if spec.shell is not None:
        from em.runner.tools.shell import template_of

        return set(template_of(spec).blanks)
    used = set().union(*(names_in(text, place) for text in templates_of(spec)))
    return used - {"env"}


def templates_of(spec: ToolSpec) -> Iterator[str]:
    """Yield the texts of a declared tool that may hold expressions."""
    yield from spec.command or ()
    if spec.http is not None:
        http = spec.http
        yield http.url
        yield from http.headers.values()
        yield from texts([http.query, http.json, http.body])


def _tool(spec: ToolSpec, allow: AllowSettings, secrets: Secrets) -> Tool:
    # A variable that an expression reads is masked from then on.
    environment = Environment(allow, secrets.add)
    for name in {*_env_names(spec), *spec.env}:
        environment[name]  # raises before the first step if it is not allowed
    if spec.shell is not None:
        from em.runner.tools.shell import ShellCommand

        command = ShellCommand(spec, allow)
        answer: Answer = command.answer
    else:
        answer = _command(spec, allow, environment) if spec.command else _request(spec, allow)
    names = argument_names(spec)
    schema = spec.args_schema or {}
    known = names | set(schema.get("properties", ()))

    def within(timeout: float | None) -> Callable[..., Any]:
        seconds = _seconds(timeout, spec.timeout)

        def call(**args: Any) -> Any:
            unknown = sorted(args.keys() - known)
            if unknown or "env" in args:
                raise RoutineError(
                    f"the tool takes no argument {(unknown or ['env'])[0]!r}",
                    place=f"tool {spec.name}",
                    fix=f"it takes: {', '.join(sorted(names)) or 'none'}",
                )
            scope = args if spec.shell else {**SCOPE, **args, "env": environment}
            try:
                return _decoded(answer(scope, seconds), spec)
            except (CommandFailed, HttpFailed, BadOutput) as error:
                raise type(error)(secrets.masked(str(error))) from None

        return call

    tool = Tool(spec.name, within(None), spec.known_effect)
    tool.takes_key = "idempotency_key" in known
    tool.within = within
    if spec.shell is not None:
        tool.preview = command.preview
    return tool


def _server_tool(spec: ToolSpec, allow: AllowSettings, secrets: Secrets, servers: Servers) -> Tool:
    assert spec.mcp is not None
    allow = _with_own(allow, spec.mcp)
    environment = Environment(allow, secrets.add)
    env = {name: environment[name] for name in spec.mcp.env}
    place = f"tool {spec.name}, field mcp.headers"
    headers = {
        name: _header(compile_value(text, f"{place}.{name}")({"env": environment}), place)
        for name, text in spec.mcp.headers.items()
    }
    session = servers.session(spec.mcp, allow, env, headers)
    own = spec.tool_of_server

    def within(timeout: float | None) -> Callable[..., Any]:
        seconds = _seconds(timeout, spec.timeout)

        def call(**args: Any) -> Any:
            try:
                return value_of(session.call(own, args, seconds), spec.output)
            except McpFailed as error:
                raise type(error)(secrets.masked(str(error))) from None
            except msgspec.DecodeError as error:
                raise BadOutput(f"the output is not JSON ({error})") from None

        return call

    tool = Tool(spec.name, within(None), spec.known_effect)
    tool.takes_key = "idempotency_key" in (spec.args_schema or {}).get("properties", ())
    tool.within = within
    tool.does_no_harm = lambda: session.does_no_harm(own, spec.timeout or TIMEOUT)
    return tool


def _seconds(of_step: float | None, of_tool: float | None) -> float:
    """Return the time that a call has: the shorter of the two that are set."""
    return min((time for time in (of_step, of_tool) if time is not None), default=TIMEOUT)


def _env_names(spec: ToolSpec) -> set[str]:
    return {
        dotted or quoted
        for text in templates_of(spec)
        for expression in _EXPRESSION.findall(text)
        for dotted, quoted in _ENV.findall(expression)
    }


def _command(spec: ToolSpec, allow: AllowSettings, environment: Environment) -> Answer:
    assert spec.command is not None
    program = find_program(spec.command[0], allow)
    place = f"tool {spec.name}, field command"
    elements = [
        (text, compile_value(text, f"{place}[{number}]"))
        for number, text in enumerate(spec.command)
    ]

    def answer(scope: Json, seconds: float) -> bytes:
        argv = list(_arguments(elements, scope, place))
        env = {name: environment[name] for name in spec.env}
        return run_command(argv, program, timeout=seconds, env=env)

    return answer


def _arguments(elements: list[tuple[str, Evaluate]], scope: Json, place: str) -> Iterator[str]:
    """Yield the arguments of a program, one for each element."""
    options_are_over = False
    for number, (source, evaluate) in enumerate(elements):
        text = _as_text(evaluate(scope), f"{place}[{number}]")
        from_a_value = source.lstrip().startswith("{")
        if from_a_value and text.startswith("-") and not options_are_over:
            raise RoutineError(
                f"the value {text[:40]!r} begins with '-' and would be an option",
                place=f"{place}[{number}]",
                fix='put "--" before it in `command`, if the program supports that',
            )
        options_are_over = options_are_over or source == "--"
        yield text


def _request(spec: ToolSpec, allow: AllowSettings) -> Answer:
    assert spec.http is not None
    http, place = spec.http, f"tool {spec.name}, field http"
    check_host(urlsplit(http.url.partition("{{")[0]), allow)
    url = _compiled_url(http.url, f"{place}.url")
    query = compile_value(http.query, f"{place}.query")
    headers = {
        name: compile_value(text, f"{place}.headers.{name}") for name, text in http.headers.items()
    }
    for name in headers:
        if name.lower() in _OWN_HEADERS:
            raise RoutineError(f"the header {name!r} can't be set", place=f"{place}.headers")
    content = _compiled_content(http, place)

    def answer(scope: Json, seconds: float) -> bytes:
        sent = {name: _header(read(scope), place) for name, read in headers.items()}
        body, kind = content(scope)
        if kind and "content-type" not in {name.lower() for name in sent}:
            sent["Content-Type"] = kind
        target = _with_query(url(scope), query(scope), place)
        found, charset = request(http.method, target, sent, body, timeout=seconds, allow=allow)
        return found if charset == "utf-8" else _recoded(found, charset)

    return answer


def _compiled_url(source: str, place: str) -> Evaluate:
    """Compile an address. Values are percent-encoded: they can't add a part to it."""
    parts = _EXPRESSION.split(source)
    literals, values = parts[::2], [compile_expression(text, place) for text in parts[1::2]]

    def evaluate(scope: Any) -> str:
        text = literals[0]
        for value, literal in zip(values, literals[1:], strict=True):
            filled = _as_text(value(scope), place)
            if filled in (".", ".."):
                raise RoutineError(
                    f"the value {filled!r} would change the path of the address", place=place
                )
            text += quote(filled, safe="") + literal
        return text

    return evaluate


def _compiled_content(http: HttpCall, place: str) -> Callable[[Json], tuple[bytes | None, str]]:
    if http.json is not None:
        value = compile_value(http.json, f"{place}.json")
        return lambda scope: (msgspec.json.encode(value(scope)), "application/json")
    if http.body is not None:
        text = compile_value(http.body, f"{place}.body")
        return lambda scope: (_as_text(text(scope), place).encode(), "text/plain; charset=utf-8")
    return lambda _scope: (None, "")


def _with_query(url: str, query: Json, place: str) -> str:
    pairs = [
        (name, _as_text(item, f"{place}.query.{name}"))
        for name, value in query.items()
        for item in (value if isinstance(value, list) else [value])
        if item is not None
    ]
    if not pairs:
        return url
    return f"{url}{'&' if urlsplit(url).query else '?'}{urlencode(pairs)}"


def _header(value: Any, place: str) -> str:
    text = _as_text(value, f"{place}.headers")
    if "\r" in text or "\n" in text:
        raise RoutineError("a header must be one line", place=f"{place}.headers")
    return text


def _as_text(value: Any, place: str) -> str:
    """Return a value as the text of one argument or one part of an address."""
    if isinstance(value, str):
        return value
    if value is None:
        raise RoutineError(
            "the value is missing (null)", place=place, fix="use default(…) if it is optional"
        )
    return msgspec.json.encode(value).decode()


def _recoded(content: bytes, charset: str) -> bytes:
    try:
        return content.decode(charset, errors="replace").encode()
    except LookupError:
        return content


def _decoded(content: bytes, spec: ToolSpec) -> Any:
    output = spec.output or ("json" if spec.http is not None else "text")
    if output == "json":
        if not content.strip() and spec.http is not None:
            return None  # many answers to writes are empty
        try:
            return msgspec.json.decode(content)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            shown = content[-200:].decode(errors="replace")
            raise BadOutput(f"the output is not JSON ({error}): {shown}") from None
    text = content.decode(errors="replace")
    return text.splitlines() if output == "lines" else text
