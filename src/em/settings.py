"""Settings: one object, read from the environment, then `em.yaml`, then the defaults."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec

from em.errors import UsageError
from em.values.mismatch import closest, mismatch
from em.values.strict_yaml import load_yaml

FILE = "em.yaml"


class RedactSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What counts as a secret, beyond the shapes that em knows."""

    patterns: dict[str, str] = {}
    fields: list[str] = []
    tool_args: dict[str, list[str]] = {}


class Price(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a model costs, in USD per million tokens. `cached`: input read from a cache."""

    input: Annotated[float, msgspec.Meta(ge=0)]
    output: Annotated[float, msgspec.Meta(ge=0)]
    cached: Annotated[float, msgspec.Meta(ge=0)] | None = None


class ProviderSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a model is reached. `timeout` counts for one request, in seconds."""

    protocol: Literal["anthropic", "openai", "scripted"] | None = None
    base_url: str | None = None
    model: str | None = None
    key_env: str | None = None
    timeout: Annotated[float, msgspec.Meta(gt=0, le=86_400)] = 120.0
    max_retries: Annotated[int, msgspec.Meta(ge=0, le=20)] = 4
    price: Price | None = None


class LlmSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which provider is asked; `model` and `base_url` win over what the provider says."""

    provider: str | None = None
    model: str | None = None
    base_url: str | None = None


class McpServer(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """An MCP server: a program that is started, or an address. `tool`: its own name of a tool."""

    command: Sequence[str] | None = None
    url: str = ""
    headers: dict[str, str] = {}
    env: Sequence[str] = ()
    tool: str = ""

    def __post_init__(self) -> None:
        """Where it is is written down, not computed: it is the same for every call."""
        if (self.command is None) == (not self.url):
            raise ValueError("`mcp` has either `command` or `url`")
        if self.command is not None and (not self.command or not self.command[0]):
            raise ValueError("`command` begins with a program")
        if any("{{" in part or "{%" in part for part in (*(self.command or ()), self.url)):
            raise ValueError("`command` and `url` of `mcp` take no expressions")
        address = urlsplit(self.url)
        if self.url and (address.scheme not in ("http", "https") or "@" in address.netloc):
            raise ValueError("`url` begins with http:// or https:// and holds no password")
        if (self.headers and self.command is not None) or (self.env and self.command is None):
            raise ValueError("`headers` need a `url`, `env` a `command`")


class AllowSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What tools that are declared in a routine may use: nothing, unless it is named here.

    mcp: servers by name; a routine may call `mcp__NAME__TOOL` of each.
    """

    commands: list[str] = []
    hosts: list[str] = []
    env: list[str] = []
    mcp: dict[str, McpServer] = {}

    def __add__(self, other: "AllowSettings") -> "AllowSettings":
        return AllowSettings(
            commands=[*self.commands, *other.commands],
            hosts=[*self.hosts, *other.hosts],
            env=[*self.env, *other.env],
            mcp={**self.mcp, **other.mcp},
        )


class EmbedSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who makes vectors for recall: nobody, the model of the extra `embed`, or a server."""

    use: Literal["none", "local", "http"] = "none"
    folder: str = ""
    sha256: dict[str, str] = {}
    url: str = ""
    model: str = ""
    key_env: str = ""
    timeout: Annotated[float, msgspec.Meta(gt=0, le=3_600)] = 30.0


class TokenSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A token of the service: the variable that holds it, and what it may do."""

    env: str
    subjects: list[str] | None = None
    access: Literal["read", "write"] = "write"


class ApiSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The HTTP service.

    lease_seconds: how long a request may take before its key is free.
    body_seconds: how long a body may take to come.
    """

    host: str = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=65_535)] = 8765
    max_request_bytes: Annotated[int, msgspec.Meta(ge=1_024, le=64 * 1024 * 1024)] = 1_048_576
    allowed_hosts: list[str] = []
    cors_origins: list[str] = []
    idempotency_hours: Annotated[float, msgspec.Meta(gt=0, le=24 * 366)] = 24.0
    lease_seconds: Annotated[float, msgspec.Meta(gt=0, le=3_600)] = 60.0
    body_seconds: Annotated[float, msgspec.Meta(gt=0, le=3_600)] = 30.0
    tokens: list[TokenSettings] = []


class StateSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How states are compiled.

    checkpoint_every: so many events, or so many minutes as `10m`; never, where it is not set.
    keys: the fields by which records of a type are one and the same.
    rules: a Python file with rules of the user's own.
    """

    checkpoint_every: int | str | None = None
    keys: dict[str, list[str]] = {}
    rules: str | None = None


class WorkflowMemorySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long what workflows left is kept, in days, and how much of it, in megabytes."""

    keep_days: Annotated[float, msgspec.Meta(gt=0, le=36_600)] | None = None
    max_mb: Annotated[float, msgspec.Meta(gt=0)] | None = None


Limit = Annotated[int, msgspec.Meta(ge=1, le=10_000)]


class WorkLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many at a time over all workers: runs of a workflow, questions to a provider."""

    workflows: dict[str, Limit] = {}
    providers: dict[str, Limit] = {}


class WorkSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Queued work (extra `distributed`).

    concurrency: jobs of one queue that a worker does at a time.
    lease: seconds without a sign of life after which a worker's jobs are given to others.
    poll: seconds between two looks into a queue.
    """

    concurrency: Annotated[int, msgspec.Meta(ge=1, le=256)] = 4
    lease: Annotated[float, msgspec.Meta(ge=1, le=3_600)] = 30.0
    poll: Annotated[float, msgspec.Meta(ge=0.01, le=60)] = 0.05
    limits: WorkLimits = WorkLimits()


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that can be set; the environment (`EM_DB`, …) wins over the file."""

    db: str = ".em/em.db"
    busy_timeout: Annotated[float, msgspec.Meta(gt=0, le=86_400)] = 30.0
    synchronous: Literal["normal", "full"] = "normal"
    redact: RedactSettings = RedactSettings()
    llm: LlmSettings = LlmSettings()
    providers: dict[str, ProviderSettings] = {}
    allow: AllowSettings = AllowSettings()
    embed: EmbedSettings = EmbedSettings()
    api: ApiSettings = ApiSettings()
    state: StateSettings = StateSettings()
    workflows: dict[str, Any] = {}
    workflow_memory: WorkflowMemorySettings = WorkflowMemorySettings()
    work: WorkSettings = WorkSettings()

    @classmethod
    def load(cls, folder: str | Path = ".", environ: Mapping[str, str] | None = None) -> "Settings":
        """Read the settings that hold in a folder."""
        path = Path(folder) / FILE
        environ = os.environ if environ is None else environ
        given: dict[str, Any] = _given(environ, "EM_", ("db", "busy_timeout", "synchronous"))
        llm = _given(environ, "EM_LLM_", LlmSettings.__struct_fields__)
        # A name without a value says nothing.
        from_file = {name: value for name, value in _read_file(path).items() if value is not None}
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
        merged = msgspec.structs.replace(settings.llm, **llm)
        api = _api(environ, settings.api)
        return msgspec.structs.replace(settings, llm=merged, api=api)


def _api(environ: Mapping[str, str], from_file: ApiSettings) -> ApiSettings:
    """The service's settings: a list in the environment is written with commas."""
    lists = ("allowed_hosts", "cors_origins")
    plain = [name for name in ApiSettings.__struct_fields__ if name not in (*lists, "tokens")]
    given = _given(environ, "EM_API_", plain)
    for name, text in _given(environ, "EM_API_", lists).items():
        given[name] = [part.strip() for part in text.split(",") if part.strip()]
    try:
        said = msgspec.convert(given, ApiSettings, strict=False)
    except msgspec.ValidationError as error:
        message, setting = mismatch(error)
        raise UsageError(message, place=f"environment, EM_API_{setting.upper()}") from None
    return msgspec.structs.replace(from_file, **{name: getattr(said, name) for name in given})


def _given(environ: Mapping[str, str], prefix: str, names: Iterable[str]) -> dict[str, Any]:
    """What the environment sets; an empty variable says nothing."""
    found = {name: environ.get(prefix + name.upper()) for name in names}
    return {name: value for name, value in found.items() if value}


def _read_file(path: Path) -> dict[str, Any]:
    try:
        text = path.read_bytes()
    except (FileNotFoundError, IsADirectoryError):
        if path.with_suffix(".yml").is_file():
            raise UsageError(
                "settings are read from em.yaml only", place="em.yml", fix="rename it"
            ) from None
        return {}
    except OSError as error:
        if not os.access(path.parent, os.X_OK):
            return {}  # a folder that can't be looked into has no settings for us
        raise UsageError(f"it can't be read: {error.strerror}", place=str(path)) from error
    values = load_yaml(text, str(path), UsageError)
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise UsageError("settings are names with values", place=str(path), fix="write `db: …`")
    return values


def _explain(error: msgspec.ValidationError, values: Mapping[str, Any], place: str) -> UsageError:
    fields = Settings.__struct_fields__
    for name in values:
        if name not in fields:
            fix = closest(name, fields) or f"known are: {', '.join(fields)}"
            return UsageError(f"{name!r} is no setting", place=place, fix=fix)
    found = mismatch(error)
    fix = "use normal or full" if found.path == "synchronous" else ""
    return UsageError(found.message, place=found.place(place, "setting "), fix=fix)
