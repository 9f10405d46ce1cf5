"""Settings: one object, read from the environment, then `em.yaml`, then the defaults."""

import os
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

import msgspec

from em.errors import UsageError

FILE = "em.yaml"


class RedactSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What counts as a secret, beyond the shapes that em knows."""

    patterns: dict[str, str] = {}
    fields: list[str] = []
    tool_args: dict[str, list[str]] = {}


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that can be set; the environment (`EM_DB`, …) wins over the file."""

    db: str = ".em/em.db"
    busy_timeout: float = 30.0
    synchronous: Literal["normal", "full"] = "normal"
    redact: RedactSettings = RedactSettings()

    @classmethod
    def load(cls, folder: str | Path = ".", environ: Mapping[str, str] | None = None) -> "Settings":
        """Read the settings that hold in a folder."""
        path = Path(folder) / FILE
        values = _read_file(path)
        environ = os.environ if environ is None else environ
        for name in ("db", "busy_timeout", "synchronous"):
            if environ.get(f"EM_{name.upper()}"):
                values[name] = environ[f"EM_{name.upper()}"]
        try:
            return msgspec.convert(values, cls, strict=False)
        except msgspec.ValidationError as error:
            raise _explain(error, values, path) from None


def _read_file(path: Path) -> dict[str, Any]:
    try:
        text = path.read_bytes()
    except (FileNotFoundError, IsADirectoryError):
        return {}
    except OSError as error:
        if not os.access(path.parent, os.X_OK):
            return {}  # a folder that can't be looked into has no settings for us
        raise UsageError(f"it can't be read: {error.strerror}", place=str(path)) from error
    import yaml

    try:
        values = yaml.safe_load(text)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or error
        raise UsageError(f"this is no YAML: {problem}", place=f"{path}{line}") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise UsageError("settings are names with values", place=str(path), fix="write `db: …`")
    return values


def _explain(error: msgspec.ValidationError, values: Mapping[str, Any], path: Path) -> UsageError:
    fields = Settings.__struct_fields__
    for name in values:
        if name not in fields:
            close = get_close_matches(str(name), fields, 1)
            fix = f"did you mean {close[0]!r}?" if close else f"known are: {', '.join(fields)}"
            return UsageError(f"{name!r} is no setting", place=str(path), fix=fix)
    message, _, where = str(error).partition(" - at `$.")
    return UsageError(message, place=f"setting {where.rstrip('`')}".strip())
