"""A routine package: a folder with routine.yaml, udf.py and the recording it came from."""

import hashlib
import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from em.errors import InvalidRoutine, RoutineError, UsageError
from em.runner.program import Program
from em.runner.routine import Routine
from em.runner.udfs import Udfs, load_udfs
from em.values.mismatch import mismatch
from em.values.strict_yaml import load_yaml

ROUTINE = "routine.yaml"
UDF = "udf.py"


class Package:
    """A routine and its own functions."""

    def __init__(self, folder: str | Path, *, stored: str = "") -> None:
        self.folder = Path(folder)
        self.stored = stored
        """The `name@version` it was unpacked from, if it was."""
        path = self.folder / ROUTINE
        try:
            self._text = path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            raise RoutineError(
                f"there is no {ROUTINE} here",
                place=str(folder),
                fix="name the folder of a routine; `em compile` makes one",
            ) from None
        # By its own name where it has one: it is unpacked elsewhere every time, and compiled once.
        self.program = load_program(self._text, stored or str(path))

    @property
    def content_hash(self) -> str:
        """What this routine says, as a hash."""
        return hashlib.sha256(self._text).hexdigest()

    def check_unchanged(self, routine_hash: str) -> None:
        """Refuse a routine that is another one by now."""
        if self.content_hash != routine_hash:
            raise RoutineError(
                "the routine was changed since this run began",
                place=self.stored or str(self.folder),
                fix="put the old one back, or start a new run",
            )

    @property
    def routine(self) -> Routine:
        """What routine.yaml says."""
        return self.program.routine

    def udfs(self, *, trust: bool = False) -> Udfs:
        """The functions of udf.py; what a model wrote runs in the sandbox unless it is trusted."""
        return load_udfs(self.folder / UDF, trust=trust)


def write_files(files: Mapping[str, str], folder: Path) -> None:
    """Write the files of a package, each whole; what else lies there is left alone.

    A file that said something else stays beside as `NAME.old`: a person may have written in it.
    """
    folder = folder.resolve()
    if folder.exists() and not (folder / ROUTINE).exists() and any(folder.iterdir()):
        raise UsageError("this folder holds something else", place=str(folder), fix="name another")
    folder.mkdir(parents=True, exist_ok=True)
    # The routine comes last: without it the folder is no package.
    for name, text in sorted(files.items(), key=lambda item: item[0] == ROUTINE):
        beside = folder / f".{name}.{os.getpid()}"
        try:
            beside.write_text(text, encoding="utf-8", newline="\n")
            _set_aside(folder / name, text)
            os.replace(beside, folder / name)
        finally:
            beside.unlink(missing_ok=True)


def _set_aside(path: Path, new: str) -> None:
    """Keep a file that is about to be replaced by another text."""
    if path.is_file() and (old := path.read_bytes()) != new.encode():
        path.with_name(path.name + ".old").write_bytes(old)


def load_program(text: bytes, place: str) -> Program:
    """A routine from its YAML, checked and compiled; the same text is compiled once."""
    return _load(text, place)


@lru_cache(maxsize=128)
def _load(text: bytes, place: str) -> Program:
    try:
        return Program(read_routine(parse_yaml(text, place), place))
    except RecursionError:
        raise RoutineError("it is nested too deeply", place=place) from None


def parse_yaml(text: bytes, place: str) -> Any:
    """The value of a YAML text; what is no YAML is told with its line."""
    return load_yaml(text, place, RoutineError)


def read_routine(value: Any, place: str) -> Routine:
    """A routine from its plain value. The first problem is told; `validate` finds all of them."""
    try:
        return msgspec.convert(value, Routine)
    except msgspec.ValidationError as error:
        found = mismatch(error)
        raise InvalidRoutine(
            found.message,
            place=found.place(place, word=""),
            fix="`em validate` lists everything that is wrong with it",
        ) from None
