"""Settings: one object from the environment, `em.yaml` and the defaults, in this order."""

import os
import stat
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec

from em.errors import UsageError
from em.trust import content_hash, is_in_trusted_folder, is_trusted
from em.values.files import read_regular
from em.values.mismatch import closest, mismatch
from em.values.strict_yaml import load_yaml

FILE = "em.yaml"
MEMORY = ".em"
"""The folder that a memory is in by default."""


class RedactSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """More rules for what counts as a secret: see `em.redaction.redactor.Redactor`."""

    patterns: dict[str, str] = {}
    fields: list[str] = []
    tool_args: dict[str, list[str]] = {}


class Price(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The price of a model in USD per million tokens. `cached`: input read from a cache."""

    input: Annotated[float, msgspec.Meta(ge=0)]
    output: Annotated[float, msgspec.Meta(ge=0)]
    cached: Annotated[float, msgspec.Meta(ge=0)] | None = None


class ProviderSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How to reach a provider. `timeout` is for one request, in seconds."""

    protocol: Literal["anthropic", "openai", "scripted"] | None = None
    base_url: str | None = None
    model: str | None = None
    key_env: str | None = None
    timeout: Annotated[float, msgspec.Meta(gt=0, le=86_400)] = 120.0
    max_retries: Annotated[int, msgspec.Meta(ge=0, le=20)] = 4
    price: Price | None = None


class LlmSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The provider to ask; `model` and `base_url` override the provider's own."""

    provider: str | None = None
    model: str | None = None
    base_url: str | None = None


class McpServer(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """An MCP server: a program to start, or an address. `tool`: the server's name of a tool."""

    command: Sequence[str] | None = None
    url: str = ""
    headers: dict[str, str] = {}
    env: Sequence[str] = ()
    tool: str = ""

    def __post_init__(self) -> None:
        """Check that the server is given once, and literally: it is the same for every call."""
        if (self.command is None) == (not self.url):
            raise ValueError("`mcp` needs either `command` or `url`")
        if self.command is not None and (not self.command or not self.command[0]):
            raise ValueError("`command` must begin with a program")
        if any("{{" in part or "{%" in part for part in (*(self.command or ()), self.url)):
            raise ValueError("`command` and `url` of `mcp` must not have expressions")
        address = urlsplit(self.url)
        if self.url and (address.scheme not in ("http", "https") or "@" in address.netloc):
            raise ValueError("`url` must begin with http:// or https:// and have no password")
        if (self.headers and self.command is not None) or (self.env and self.command is None):
            raise ValueError("`headers` needs a `url`, `env` needs a `command`")


class AllowSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the tools that a routine declares may use. By default: nothing.

    folders: what shell commands and file tools may read and change.
    mcp: servers by name; a routine may call `mcp__NAME__TOOL` of each.
    """

    commands: list[str] = []
    folders: list[str] = []
    hosts: list[str] = []
    env: list[str] = []
    mcp: dict[str, McpServer] = {}

    def __add__(self, other: "AllowSettings") -> "AllowSettings":
        return AllowSettings(
            commands=[*self.commands, *other.commands],
            folders=[*self.folders, *other.folders],
            hosts=[*self.hosts, *other.hosts],
            env=[*self.env, *other.env],
            mcp={**self.mcp, **other.mcp},
        )


class EmbedSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The embedder for recall: none, the model of the extra `embed`, or a server."""

    use: Literal["none", "local", "http"] = "none"
    folder: str = ""
    sha256: dict[str, str] = {}
    url: str = ""
    model: str = ""
    key_env: str = ""
    timeout: Annotated[float, msgspec.Meta(gt=0, le=3_600)] = 30.0


class TokenSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A token of the service: the variable with its value, and what it allows."""

    env: str
    subjects: list[str] | None = None
    access: Literal["read", "write"] = "write"


class ApiSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The HTTP service.

    lease_seconds: how long a request may take before another may use its idempotency key.
    body_seconds: how long a client may take to send a body.
    request_seconds: how long work on a request may take; then it is ended.
    run_seconds: the same for a run, which waits for tools and models; it ends between two calls.
    max_connections: how many may be open, and requests be under way; more get 503.
    max_header_bytes: the size of a request's line and headers together.
    mcp_sessions: whether a client over MCP has a session in the memory of one process, so that it
        can be asked for answers and told of changes. `auto`: only if there is one process.
    workers: how many processes serve; the limits of connections are for each of them.
    keep_alive_seconds: how long a connection may wait for its next request.
    stop_seconds: how long requests under way may take after SIGTERM.
    """

    host: str = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=65_535)] = 8765
    max_request_bytes: Annotated[int, msgspec.Meta(ge=1_024, le=64 * 1024 * 1024)] = 1_048_576
    allowed_hosts: list[str] = []
    cors_origins: list[str] = []
    idempotency_hours: Annotated[float, msgspec.Meta(gt=0, le=24 * 366)] = 24.0
    lease_seconds: Annotated[float, msgspec.Meta(gt=0, le=3_600)] = 60.0
    body_seconds: Annotated[float, msgspec.Meta(gt=0, le=3_600)] = 30.0
    request_seconds: Annotated[float, msgspec.Meta(gt=0, le=86_400)] = 120.0
    run_seconds: Annotated[float, msgspec.Meta(gt=0, le=86_400)] = 3_600.0
    max_connections: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 1_000
    max_header_bytes: Annotated[int, msgspec.Meta(ge=1_024, le=1_048_576)] = 65_536
    workers: Annotated[int, msgspec.Meta(ge=1, le=256)] = 1
    keep_alive_seconds: Annotated[float, msgspec.Meta(gt=0, le=3_600)] = 5.0
    stop_seconds: Annotated[float, msgspec.Meta(gt=0, le=3_600)] = 25.0
    mcp_sessions: Literal["auto", "on", "off"] = "auto"
    tokens: list[TokenSettings] = []


class McpSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `em mcp` and `/mcp` list.

    routines: how many routines may be tools of their own; if there are more, they are found and run
    by two tools. tokens: what a routine may add to the client's context; what does not fit is
    returned when it is needed.
    """

    routines: Annotated[int, msgspec.Meta(ge=0, le=1_000)] = 20
    tokens: Annotated[int, msgspec.Meta(ge=20, le=10_000)] = 59


class StateSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How states are compiled.

    checkpoint_every: checkpoint after so many events (500) or a duration (10m); never by default.
    keys: the fields that identify a record of a type.
    rules: a Python file with the user's own rules.
    second_question: what a model that reads texts is asked about once more: all facts; those that
        change something or that code doubts; or none.
    """

    checkpoint_every: int | str | None = None
    keys: dict[str, list[str]] = {}
    rules: str | None = None
    second_question: Literal["all", "changes", "none"] = "all"


class WorkflowMemorySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many days workflow memory is stored, and how many megabytes of it."""

    keep_days: Annotated[float, msgspec.Meta(gt=0, le=36_600)] | None = None
    max_mb: Annotated[float, msgspec.Meta(gt=0)] | None = None


class RecordingSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many days traces are stored after they were recorded; for ever by default."""

    keep_days: Annotated[float, msgspec.Meta(gt=0, le=36_600)] | None = None


Limit = Annotated[int, msgspec.Meta(ge=1, le=10_000)]


class WorkLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The most runs of a workflow at a time, over all workers."""

    workflows: dict[str, Limit] = {}


class WorkSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Queued work.

    concurrency: jobs of one queue that a worker runs at a time.
    lease: seconds without a heartbeat after which other workers take over a worker's jobs.
    most_waiting: jobs that may wait; more are refused until workers have done some.
    poll: seconds between two reads of a queue.
    compile_again: how often a worker compiles routines again with new traces (10m); by default
        never.
    """

    concurrency: Annotated[int, msgspec.Meta(ge=1, le=256)] = 4
    lease: Annotated[float, msgspec.Meta(ge=1, le=3_600)] = 3.0
    most_waiting: Annotated[int, msgspec.Meta(ge=1)] = 50_000
    poll: Annotated[float, msgspec.Meta(ge=0.01, le=60)] = 0.05
    limits: WorkLimits = WorkLimits()
    compile_again: str | None = None


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All settings. The environment (`EM_DB`, …) overrides the file.

    routines: the switch for all: `off`, `shadow` (only compared beside the agent), or `on`.
    tools: Python modules or files whose functions are the tools of runs that are given none.
    record: whether the hooks of coding agents record sessions in this folder and those below.
    commands: what programs in shell commands do, in addition to `em/shell/programs.yaml`.
    second_question: show the model that read a request what would be written, and ask for a yes.
    """

    db: str = ".em/em.db"
    routines: Literal["off", "shadow", "on"] = "on"
    busy_timeout: Annotated[float, msgspec.Meta(gt=0, le=86_400)] = 30.0
    synchronous: Literal["normal", "full"] = "normal"
    redact: RedactSettings = RedactSettings()
    llm: LlmSettings = LlmSettings()
    providers: dict[str, ProviderSettings] = {}
    allow: AllowSettings = AllowSettings()
    commands: dict[str, Any] = {}
    embed: EmbedSettings = EmbedSettings()
    api: ApiSettings = ApiSettings()
    mcp: McpSettings = McpSettings()
    state: StateSettings = StateSettings()
    workflows: dict[str, Any] = {}
    workflow_memory: WorkflowMemorySettings = WorkflowMemorySettings()
    work: WorkSettings = WorkSettings()
    tools: str | list[str] = []
    record: bool = True
    recordings: RecordingSettings = RecordingSettings()
    second_question: bool = False

    @classmethod
    def load(
        cls,
        folder: str | Path | None = None,
        environ: Mapping[str, str] | None = None,
        *,
        tells: bool = True,
    ) -> "Settings":
        """Read the settings of a folder; without one, those of `memory_folder()`.

        There, relative paths of em.yaml are those from its own folder.
        Of an em.yaml that its user has not trusted, settings in `NAMED` are ignored; `tells`: a
        warning says which.
        """
        base = memory_folder() if folder is None else None
        path = Path(base or folder or "") / FILE
        environ = os.environ if environ is None else environ
        given: dict[str, Any] = _given(
            environ, "EM_", ("db", "routines", "busy_timeout", "synchronous")
        )
        llm = _given(environ, "EM_LLM_", LlmSettings.__struct_fields__)
        # Ignore names without a value.
        from_file = {name: value for name, value in _read_file(path).items() if value is not None}
        if isinstance(from_file.get("routines"), bool):  # as YAML reads a bare on and off
            from_file["routines"] = "on" if from_file["routines"] else "off"
        named = _named(from_file)
        if named and not is_folder_trusted(path.parent):
            from_file = _without(from_file, named)
            if tells:
                warnings.warn(Untrusted(path, named), stacklevel=1)  # from here: shown once
        if environ.get("EM_EMBED"):
            known = from_file.get("embed")
            given["embed"] = {
                **(known if isinstance(known, dict) else {}),
                "use": environ["EM_EMBED"],
            }
        for place, values in (("environment", given), (str(path), from_file)):
            try:
                msgspec.convert(values, cls, strict=False)
            except msgspec.ValidationError as error:
                raise _explain(error, values, place) from None
        settings = msgspec.convert({**from_file, **given}, cls, strict=False)
        if base is not None and base != Path():
            settings = _from(base, settings, keep=("db",) if "db" in given else ())
        merged = msgspec.structs.replace(settings.llm, **llm)
        api = _api(environ, settings.api)
        return msgspec.structs.replace(settings, llm=merged, api=api)


def memory_folder(place: Path | None = None) -> Path:
    """Return the folder whose em.yaml and memory count here; `.` if it is the current one.

    place: the folder to look from, by default the current one.

    It is the nearest one, from the current folder upwards, that has an em.yaml or a memory; at most
    the repository's root, which is taken if none has one. Folders above that other people could
    have put it into don't count.
    """
    here = Path.cwd() if place is None else place.resolve()
    own = Path() if place is None else here
    root = repository_root(here)
    for above in (here, *here.parents):
        has_own = os.path.isfile(above / FILE) or os.path.isdir(above / MEMORY)
        if (has_own or above == root) and (above == here or _is_ours(above)):
            return own if above == here else above
        if above == root:
            break
    return own


def memory_above(folder: Path) -> Path | None:
    """Return the nearest folder above a repository that has a memory, which em does not use."""
    root = repository_root(folder)
    above = () if root is None else root.parents
    return next((one for one in above if os.path.isdir(one / MEMORY) and _is_ours(one)), None)


def repository_root(folder: Path) -> Path | None:
    """Return the nearest folder upwards that has a `.git`; folders that are closed have none."""
    places = (folder, *folder.parents)
    return next((place for place in places if os.path.exists(place / ".git")), None)


def _is_ours(folder: Path) -> bool:
    """Return whether only this user, or root, can have put an em.yaml or a memory into a folder."""
    try:
        found = [one.stat() for one in (folder, folder / FILE, folder / MEMORY) if one.exists()]
    except OSError:
        return False
    return all(one.st_uid in (os.geteuid(), 0) and not one.st_mode & stat.S_IWOTH for one in found)


def _from(folder: Path, settings: Settings, keep: Sequence[str]) -> Settings:
    """Return settings whose relative paths are those from a folder."""

    def placed(path: str) -> str:
        is_plain = path and path != ":memory:" and "://" not in path and not path.startswith("~")
        return str(folder / path) if is_plain else path

    allow = msgspec.structs.replace(settings.allow, folders=[*map(placed, settings.allow.folders)])
    rules = settings.state.rules
    return msgspec.structs.replace(
        settings,
        db=settings.db if "db" in keep else placed(settings.db),
        allow=allow,
        embed=msgspec.structs.replace(settings.embed, folder=placed(settings.embed.folder)),
        state=msgspec.structs.replace(settings.state, rules=rules and placed(rules)),
        tools=[placed(one) if one.endswith(".py") else one for one in tool_sources(settings.tools)],
    )


def tool_sources(tools: str | Sequence[str]) -> list[str]:
    """Return the modules and files that the setting `tools` names."""
    return [tools] if isinstance(tools, str) else list(tools)


NAMED = (
    "db",
    "llm.base_url",
    "providers",
    "allow",
    "commands",
    "embed",
    "api.host",
    "api.allowed_hosts",
    "api.cors_origins",
    "api.tokens",
    "state.rules",
    "recordings",
    "tools",
    "workflow_memory",
)
"""Settings that name an address, a variable, a program, code or a database, or that erase."""


class Untrusted(UserWarning):
    """Settings of an em.yaml were ignored, because nobody has trusted its folder."""

    def __init__(self, path: Path, ignored: Sequence[str]) -> None:
        super().__init__(
            f"{path}: ignored until you trust this folder: {', '.join(ignored)}"
            f" (read the file, then: em trust --folder {path.parent})"
        )


def _named(values: Mapping[str, Any]) -> list[str]:
    """Return those of the `NAMED` settings that a file has."""
    found = []
    for name in NAMED:
        first, _, second = name.partition(".")
        held = values.get(first)
        if held is not None and (not second or (isinstance(held, dict) and second in held)):
            found.append(name)
    return found


def _without(values: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    kept = {name: value for name, value in values.items() if name not in names}
    for name in names:
        first, _, second = name.partition(".")
        if second:
            kept[first] = {key: one for key, one in kept[first].items() if key != second}
    return kept


def is_folder_trusted(folder: Path) -> bool:
    """Return whether the person of this account trusts the em.yaml that this folder has now."""
    return is_in_trusted_folder(folder) or is_trusted(folder_hash(folder))


def folder_hash(folder: Path) -> str:
    """Return the hash of a folder's place, its em.yaml and the code that this names."""
    file = folder / FILE
    rules = _read_file(file).get("state")
    named = rules.get("rules") if isinstance(rules, dict) else None
    parts = [os.fsencode(folder.resolve()), file.read_bytes()]
    if isinstance(named, str):
        parts.append(_content(folder / named))
    tools = _read_file(file).get("tools")
    for one in [tools] if isinstance(tools, str) else tools if isinstance(tools, list) else ():
        parts.append(_content(folder / str(one)))
    return content_hash(b"folder" + b"".join(content_hash(part).encode() for part in parts))


def _content(path: Path) -> bytes:
    """Return what a file holds; nothing if there is none, or its name is none that a file has."""
    try:
        return path.read_bytes() if path.is_file() else b""
    except (OSError, ValueError):
        return b""


def named_settings(folder: Path) -> dict[str, Any]:
    """Return what a folder's em.yaml has of the `NAMED` settings, by their names."""
    values = {name: value for name, value in _read_file(folder / FILE).items() if value is not None}
    found = {}
    for name in _named(values):
        first, _, second = name.partition(".")
        found[name] = values[first][second] if second else values[first]
    return found


def _api(environ: Mapping[str, str], from_file: ApiSettings) -> ApiSettings:
    """Read the settings of the service; lists in the environment have commas."""
    lists = ("allowed_hosts", "cors_origins")
    plain = [name for name in ApiSettings.__struct_fields__ if name not in (*lists, "tokens")]
    given = _given(environ, "EM_API_", plain)
    for name, text in _given(environ, "EM_API_", lists).items():
        given[name] = [part.strip() for part in text.split(",") if part.strip()]
    try:
        read = msgspec.convert(given, ApiSettings, strict=False)
    except msgspec.ValidationError as error:
        message, setting = mismatch(error)
        raise UsageError(message, place=f"environment, EM_API_{setting.upper()}") from None
    return msgspec.structs.replace(from_file, **{name: getattr(read, name) for name in given})


def _given(environ: Mapping[str, str], prefix: str, names: Iterable[str]) -> dict[str, Any]:
    """Return the settings in the environment; empty variables are ignored."""
    found = {name: environ.get(prefix + name.upper()) for name in names}
    return {name: value for name, value in found.items() if value}


def _read_file(path: Path) -> dict[str, Any]:
    try:
        text = read_regular(path)
    except (FileNotFoundError, IsADirectoryError):
        if path.with_suffix(".yml").is_file():
            raise UsageError(
                "em reads settings from em.yaml, not em.yml", place="em.yml", fix="rename it"
            ) from None
        return {}
    except OSError as error:
        if not os.access(path.parent, os.X_OK):
            return {}  # the folder can't be searched, so it has no settings for us
        raise UsageError(f"can't be read: {error.strerror}", place=str(path)) from error
    values = load_yaml(text, str(path), UsageError)
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise UsageError("expected names with values", place=str(path), fix="write `db: …`")
    main, own = values.get("main_llm"), values.get("llm") or {}  # two names of one setting
    if isinstance(main, dict) and isinstance(own, dict):
        values["llm"] = {**values.pop("main_llm"), **own}
    return values


def _explain(error: msgspec.ValidationError, values: Mapping[str, Any], place: str) -> UsageError:
    fields = Settings.__struct_fields__
    for name in values:
        if name not in fields:
            fix = closest(name, fields) or f"known settings: {', '.join(fields)}"
            return UsageError(f"unknown setting {name!r}", place=place, fix=fix)
    found = mismatch(error)
    fix = "use normal or full" if found.path == "synchronous" else ""
    return UsageError(found.message, place=found.place(place, "setting "), fix=fix)
