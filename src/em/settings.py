"""Settings: one object, read from the environment, then `em.yaml`, then the defaults."""

import os
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from em.errors import UsageError

FILE = "em.yaml"


class RedactSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What counts as a secret, beyond the shapes that em knows."""

    patterns: dict[str, str] = {}
    fields: list[str] = []
    tool_args: dict[str, list[str]] = {}


class EmbedSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who makes vectors for recall: nobody, the model of the extra `embed`, or a server."""

    use: Literal["none", "local", "http"] = "none"
    folder: str = ""
    sha256: dict[str, str] = {}
    url: str = ""
    model: str = ""
    key_env: str = ""
    timeout: Annotated[float, msgspec.Meta(gt=0, le=3_600)] = 30.0


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that can be set; the environment (`EM_DB`, …) wins over the file."""

    db: str = ".em/em.db"
    busy_timeout: Annotated[float, msgspec.Meta(gt=0, le=86_400)] = 30.0
    synchronous: Literal["normal", "full"] = "normal"
    redact: RedactSettings = RedactSettings()
    embed: EmbedSettings = EmbedSettings()

    @classmethod
    def load(cls, folder: str | Path = ".", environ: Mapping[str, str] | None = None) -> "Settings":
        """Read the settings that hold in a folder."""
        path = Path(folder) / FILE
        environ = os.environ if environ is None else environ
        given: dict[str, Any] = {
            name: environ[f"EM_{name.upper()}"]
            for name in ("db", "busy_timeout", "synchronous")
            if environ.get(f"EM_{name.upper()}")
        }
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
        return msgspec.convert({**from_file, **given}, cls, strict=False)


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
    import yaml

    try:
        values = yaml.load(text, Loader=_loader())  # noqa: S506 - a SafeLoader, made stricter
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or error
        raise UsageError(f"this is no YAML: {problem}", place=f"{path}{line}") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise UsageError("settings are names with values", place=str(path), fix="write `db: …`")
    return values


def _loader() -> Any:
    """YAML's safe loader without aliases: a few of them can unfold to gigabytes."""
    import yaml

    class Loader(yaml.SafeLoader):
        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise yaml.YAMLError("aliases are not taken here")
            return super().compose_node(parent, index)

    return Loader


def _explain(error: msgspec.ValidationError, values: Mapping[str, Any], place: str) -> UsageError:
    fields = Settings.__struct_fields__
    for name in values:
        if name not in fields:
            close = get_close_matches(str(name), fields, 1)
            fix = f"did you mean {close[0]!r}?" if close else f"known are: {', '.join(fields)}"
            return UsageError(f"{name!r} is no setting", place=place, fix=fix)
    message, _, where = str(error).partition(" - at `$.")
    setting = where.rstrip("`")
    fix = "use normal or full" if setting == "synchronous" else ""
    return UsageError(message, place=f"{place}, setting {setting}", fix=fix)
