"""What Python itself must be able to read: its library and the system's shared libraries."""

import os
import sys
import sysconfig
from functools import lru_cache
from glob import glob
from pathlib import Path

SYSTEM = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache", "/usr/share/zoneinfo")
PACKAGES = ("site-packages", "dist-packages")
"""Folders of installed packages: no part of Python, and not for the code to read."""


def interpreter() -> str:
    """The Python that runs confined code: this one, without its virtual environment."""
    return os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable or "")


def library() -> str:
    """The folder of the standard library."""
    return os.path.dirname(os.path.realpath(os.__file__))


@lru_cache(maxsize=1)
def shared_libraries() -> tuple[str, ...]:
    """Files beside the library that the interpreter is linked with."""
    folder = str(sysconfig.get_config_var("LIBDIR") or "")
    if not folder or any(folder == name or folder.startswith(f"{name}/") for name in SYSTEM):
        return ()
    return tuple(sorted(glob(f"{folder}/*.so*")))


@lru_cache(maxsize=1)
def hidden() -> tuple[str, ...]:
    """Folders of installed packages inside what can be read."""
    found = [Path(library()) / name for name in PACKAGES]
    found += [Path(folder) / "python3" / name for folder in SYSTEM[:4] for name in PACKAGES]
    return tuple(sorted({os.path.realpath(path) for path in found if path.is_dir()}))


@lru_cache(maxsize=1)
def readable() -> tuple[str, ...]:
    """Every file and folder that can be read, one by one around what is hidden."""
    found: list[str] = []
    for path in (*SYSTEM, *shared_libraries(), library()):
        if os.path.exists(path):
            _add(os.path.realpath(path), found)
    return tuple(dict.fromkeys(found))


def _add(path: str, found: list[str]) -> None:
    inside = [name for name in hidden() if name == path or name.startswith(f"{path}/")]
    if not inside:
        found.append(path)
    elif path not in inside:
        for child in sorted(os.listdir(path)):
            _add(os.path.join(path, child), found)
