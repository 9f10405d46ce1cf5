"""The functions that a trace called, bound to the real ones where they are given."""

import importlib
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from em.errors import InputError
from em.runner.authorship import is_model_written, model_of
from em.runner.tools import Function, functions_of, load_module

Udfs = Mapping[str, Function] | str | None
"""Functions by name, or where they are: `package.module` or a file."""


class GivenUdfs(msgspec.Struct, frozen=True):
    """The functions that are given, and the text of the file they are in, if it is one."""

    functions: Mapping[str, Function] = {}
    text: str = ""
    written_by: str = ""
    """The model that wrote that file, if one did and a person has read it."""


def load_udfs(udfs: Udfs) -> GivenUdfs:
    """The functions of a module, of a file or of a mapping."""
    if not isinstance(udfs, str):
        return GivenUdfs(dict(udfs or {}))
    functions = functions_of(load_module(udfs), imported=True)
    if not udfs.endswith(".py"):
        return GivenUdfs(functions)
    try:
        text = Path(udfs).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"it is no UTF-8: {error}", place=udfs) from None
    file = Path(udfs).resolve()
    marked = is_model_written(file.parent, file.name)
    return GivenUdfs(
        functions, text, (model_of(file.parent, file.name) or "model") if marked else ""
    )


def import_line(name: str, function: Any) -> str | None:
    """How to import a function under this name; None if it can't be imported."""
    module, own = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if not module or module == "__main__" or not own.isidentifier():
        return None
    try:
        found = inspect.getattr_static(importlib.import_module(module), own, None)
    except ImportError:
        return None
    if found is not function:
        return None
    return f"from {module} import {own}" + (f" as {name}" if own != name else "")
