"""Routines in a memory: a package as an artefact, run by its name or `name@version`."""

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from em.errors import NotFound, RoutineError, UsageError
from em.runner.authorship import WRITTEN_BY, code_notes
from em.runner.package import ROUTINE, Package, parse_yaml, read_routine, write_files
from em.runner.routine import Routine
from em.store.protocol import Artefact, ArtefactDraft, Commit, Store
from em.values.canonical import Json

KIND = "routine"
MAX_FILE = 16 * 1024 * 1024
_IN_MEMORY = "/dev/shm"  # noqa: S108 - a folder of its own is made there, for us alone


class KeptRoutine(Routine, frozen=True, kw_only=True):
    """A routine in a memory, and under which name and number it is kept."""

    ref: str
    """`name@version`."""
    from_events: Sequence[str] = ()


def is_folder(routine: str | Path) -> bool:
    """Whether a routine is named by its folder: by a path, or what is one here."""
    is_path = isinstance(routine, Path) or any(sign in routine for sign in "/\\.")
    return is_path or Path(routine).is_dir()


def files_in(folder: str | Path) -> dict[str, str]:
    """The texts of a package in a folder, by the names of their files."""
    Package(folder)  # what can't be run is not kept
    files: dict[str, str] = {}
    for path in sorted(Path(folder).iterdir()):
        if path.name == WRITTEN_BY and not path.is_file():
            # Without it the model's code would count as a person's own.
            raise UsageError("this is no file", place=str(path), fix="put the one of em back")
        if path.suffix not in (".yaml", ".py", ".json") or not path.is_file():
            continue
        if path.stat().st_size > MAX_FILE:
            raise UsageError(f"a file of more than {MAX_FILE:,} bytes", place=str(path))
        try:
            files[path.name] = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise UsageError("it is no text", place=str(path)) from None
        except OSError as error:
            raise UsageError(f"it can't be read: {error.strerror}", place=str(path)) from None
    return files


def keep_routine(
    store: Store, files: Mapping[str, str], from_events: Sequence[str] = ()
) -> KeptRoutine:
    """Keep a package as a new version; the same texts again are the version they were."""
    routine = read_routine(parse_yaml(files[ROUTINE].encode(), ROUTINE), ROUTINE)
    if not routine.name or any(sign in routine.name for sign in "@/\\."):
        raise UsageError(
            f"{routine.name!r} can't be the name of a routine that is kept",
            place=f"{ROUTINE}, name",
            fix="it could not be run by this name: leave out @, /, \\ and dots",
        )
    body: Json = {"files": dict(files)}
    draft = ArtefactDraft(kind=KIND, name=routine.name, body=body, from_events=from_events)
    commit = Commit(artefacts=[draft], events=code_notes(files, routine.name, from_events))
    (artefact,) = store.commit(commit).artefacts
    return _kept(artefact)


def kept_routines(store: Store, name: str | None = None) -> Iterator[Artefact]:
    """Every version of every routine, or of one."""
    return store.artefacts(KIND, name)


def find_routine(store: Store, ref: str) -> Artefact:
    """The version that `name@version` or `name` (its newest) names."""
    name, _, number = ref.partition("@")
    if number and not number.isdecimal():
        raise UsageError(f"{number!r} is no version", place=ref, fix=f"write {name}@1")
    artefact = store.artefact(KIND, name, int(number) if number else None)
    versions = [f"{name}@{found.version}" for found in store.artefacts(KIND, name)]
    if artefact is None and versions:
        usable = "" if number else "every version is retired; name one: "
        raise NotFound(
            f"there is no routine {ref!r} in this memory",
            fix=f"{usable or 'there are: '}{', '.join(versions[-10:])}",
        )
    if artefact is None:
        known = sorted({found.name for found in store.artefacts(KIND)})
        close = [other for other in known if name in other or other in name] or known[:5]
        fix = f"there are: {', '.join(close)}" if close else "`em compile --keep` keeps one"
        raise NotFound(f"there is no routine {ref!r} in this memory", fix=fix)
    if artefact.body is None:
        raise NotFound("what it was compiled from was erased, and so was it", place=ref)
    return artefact


def routine_of(artefact: Artefact) -> KeptRoutine:
    """The routine of an artefact."""
    if artefact.body is None:
        raise NotFound("it was erased", place=f"{artefact.name}@{artefact.version}")
    return _kept(artefact)


def _ref_of(routine: str | Path | Routine) -> str:
    """The name by which a memory keeps a routine; empty for a folder."""
    if isinstance(routine, Routine):
        return routine.ref if isinstance(routine, KeptRoutine) else routine.name
    return "" if is_folder(routine) else str(routine)


def _kept(artefact: Artefact) -> KeptRoutine:
    ref = f"{artefact.name}@{artefact.version}"
    text = texts_of(artefact)[ROUTINE].encode()
    routine = read_routine(parse_yaml(text, ref), ref)
    fields = {name: getattr(routine, name) for name in Routine.__struct_fields__}
    return KeptRoutine(**fields, ref=ref, from_events=artefact.from_events)


def texts_of(artefact: Artefact) -> dict[str, str]:
    """The files of a package that is kept."""
    try:
        files = msgspec.convert((artefact.body or {}).get("files"), dict[str, str])
    except msgspec.ValidationError:
        files = {}
    if ROUTINE not in files or any("/" in name or name.startswith(".") for name in files):
        raise RoutineError("this is no package", place=f"{artefact.name}@{artefact.version}")
    return files


@contextmanager
def opened(store: Store, routine: str | Path | Routine) -> Iterator[Package]:
    """The package in a folder, or one that is kept."""
    ref = _ref_of(routine)
    if isinstance(routine, Routine) or ref:
        with unpacked(store, ref) as package:
            yield package
    else:
        yield Package(routine)


@contextmanager
def unpacked(store: Store, ref: str) -> Iterator[Package]:
    """A package that is kept, as one that can be run, for as long as the block lasts."""
    artefact = find_routine(store, ref)
    with _folder_of(texts_of(artefact)) as name:
        yield Package(name, stored=f"{artefact.name}@{artefact.version}")


def _folder_of(files: Mapping[str, str]) -> "tempfile.TemporaryDirectory[str]":
    """A folder with these files: in memory where there is such a place, which no disk keeps."""
    for place in (_IN_MEMORY if os.access(_IN_MEMORY, os.W_OK | os.X_OK) else None, None):
        folder = tempfile.TemporaryDirectory(prefix="em-routine-", dir=place)
        try:
            write_files(files, Path(folder.name))
        except OSError:
            folder.cleanup()
            if place is None:
                raise
        else:
            return folder
    raise AssertionError("the second place either takes it or raises")
