"""Routine packages: a routine with its functions and recording, in a folder or in a memory.

The functions of udf.py run in this process, or in the sandbox if a model wrote them and nobody has
read them. A package in a memory is an artefact, run by its name or `name@version`.
"""

import ast
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec

from em.errors import InvalidRoutine, NotFound, RoutineError, SandboxError, UsageError
from em.log.event import Draft
from em.runner.authorship import WRITTEN_BY, code_notes, runs_in_sandbox
from em.runner.card import KIND
from em.runner.routine import Program, Routine
from em.runner.tools import Function, functions_of, load_file
from em.runner.trial import Proof, Trials, read_proof
from em.store.protocol import Artefact, ArtefactDraft, Commit, Store
from em.trust import Database, content_hash
from em.values.canonical import Json
from em.values.files import read_file
from em.values.json_schema import schema_problem
from em.values.mismatch import mismatch
from em.values.strict_yaml import load_yaml
from em.values.syntax_tree import module_of

if TYPE_CHECKING:
    from tempfile import TemporaryDirectory

    from em.runner.sandbox.sandbox import SandboxSession


NOT_PYTHON = (SyntaxError, ValueError, RecursionError, MemoryError)
"""What Python's parser raises: the third and the fourth for what is nested too deeply."""


class Udfs(dict[str, Function]):
    """Functions by name. A context manager: it ends the sandbox in which they run, if any."""

    def __init__(
        self,
        functions: Mapping[str, Function] | None = None,
        session: "SandboxSession | None" = None,
    ) -> None:
        super().__init__(functions or {})
        self._session = session

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        if self._session is not None:
            self._session.close()


def load_udfs(path: Path, *, trust: bool = False) -> Udfs:
    """Load the functions of a file; in the sandbox if a model wrote it and nobody read it."""
    try:
        code = read_file(path, RoutineError)
    except FileNotFoundError:
        return Udfs()
    if runs_in_sandbox(path, code) and not trust:
        return sandboxed(path, code)
    module = load_file(path, f"em_udf_{content_hash(code)[:12]}", code)
    return Udfs(functions_of(module, imported=True))


def sandboxed(path: Path, code: bytes) -> Udfs:
    """Load the functions of this code in a sandbox; `path` names the code in errors."""
    from em.runner.sandbox.sandbox import choose

    try:
        text = code.decode()
        tree = module_of(text)
    except NOT_PYTHON as error:
        line = getattr(error, "lineno", None) or 0
        raise RoutineError(f"invalid Python: {error}", place=f"{path}:{line}") from None
    try:
        session = choose(text).open(text)
    except SandboxError as error:
        error.place = str(path)
        raise
    # The same as in this process: the public functions that the file itself defines.
    names = [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name[0] != "_"
    ]
    return Udfs({name: _in_session(session, name, path) for name in names}, session)


def _in_session(session: "SandboxSession", name: str, path: Path) -> Function:
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return session.call(name, kwargs, args)
        except SandboxError as error:
            line = error.data.get("line")
            error.place = f"{path}:{line}" if line else f"{path}, function {name}"
            raise

    call.__name__ = call.__qualname__ = name
    return call


_NO_FUNCTIONS = (
    ast.Constant, ast.JoinedStr, ast.List, ast.Tuple, ast.Dict, ast.Set, ast.ListComp, ast.DictComp,
    ast.SetComp,
)  # fmt: skip


def udf_names(path: Path) -> frozenset[str] | None:
    """Return the names that can be functions; None if only running the file can tell."""
    try:
        tree = module_of(read_file(path, RoutineError))
    except SyntaxError as error:
        raise RoutineError(
            f"invalid Python: {error.msg}", place=f"{path}:{error.lineno or 1}"
        ) from None
    except NOT_PYTHON as error:
        raise RoutineError(f"invalid Python: {error}", place=f"{path}:1") from None
    names = frozenset(_bound(tree.body))
    if "*" in names:
        return None
    return frozenset(name for name in names if not name.startswith("_"))


def _bound(statements: list[ast.stmt]) -> Iterator[str]:
    """Yield the names that these statements bind to something that may be a function."""
    for node in statements:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            if node.value is not None and not isinstance(node.value, _NO_FUNCTIONS):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                yield from (target.id for target in targets if isinstance(target, ast.Name))
        elif not isinstance(node, ast.ClassDef | ast.Import):
            for field in ("body", "orelse", "finalbody"):
                yield from _bound(getattr(node, field, []))
            for handler in getattr(node, "handlers", []):
                yield from _bound(handler.body)


ROUTINE = "routine.yaml"
UDF = "udf.py"
PROOF = "proof.json"


class Package:
    """A routine and its own functions."""

    def __init__(
        self, folder: str | Path, *, stored: str = "", database: Database | None = None
    ) -> None:
        self.folder = Path(folder)
        self.stored = stored
        """The `name@version` it was unpacked from, if it was."""
        self._database = database
        path = self.folder / ROUTINE
        try:
            self._text = read_file(path, RoutineError)
        except FileNotFoundError:
            raise RoutineError(
                f"there is no {ROUTINE} here",
                place=str(folder),
                fix="name the folder of a routine; `em compile` makes one",
            ) from None
        except OSError as error:
            raise RoutineError(f"can't be read: {error.strerror}", place=str(path)) from None
        # A stored package is unpacked into a new folder each time: cache it by its own name.
        self.program = load_program(self._text, stored or str(path))

    @property
    def content_hash(self) -> str:
        """The hash of routine.yaml."""
        return hashlib.sha256(self._text).hexdigest()

    @property
    def text(self) -> str:
        """The text of routine.yaml."""
        return self._text.decode()

    @property
    def udf_hash(self) -> str:
        """The hash of udf.py; empty without one."""
        try:
            return content_hash(read_file(self.folder / UDF, RoutineError))
        except FileNotFoundError:
            return ""

    def check_unchanged(self, routine_hash: str) -> None:
        """Raise if the routine has changed since a run began."""
        if self.content_hash != routine_hash:
            raise RoutineError(
                "the routine was changed since this run began",
                place=self.stored or str(self.folder),
                fix="restore the old one, or start a new run",
            )

    @property
    def routine(self) -> Routine:
        """The routine."""
        return self.program.routine

    @property
    def trials(self) -> Trials:
        """How the routine did on traces that it was not learnt from."""
        try:
            text = read_file(self.folder / PROOF, RoutineError).decode()
        except (FileNotFoundError, UnicodeDecodeError):
            return Trials()
        return trials_of({ROUTINE: self.text, PROOF: text})

    def udfs(self, *, trust: bool = False) -> Udfs:
        """Load the functions of udf.py; in the sandbox if a model wrote them, unless trusted.

        If a database brought or named them, the database must be trusted.
        """
        path = self.folder / UDF
        if self._database is not None and not trust and path.exists():
            self._database.refuse_code(f"the functions (udf.py) of {self.stored or self.folder}")
        return load_udfs(path, trust=trust)


def proof_of(files: Mapping[str, str]) -> Proof | None:
    """Read the proof of a package; None without one."""
    try:
        return read_proof(files[PROOF])
    except (KeyError, msgspec.MsgspecError):
        return None


def trials_of(files: Mapping[str, str]) -> Trials:
    """Read the trials of a package on traces that it was not learnt from.

    They are outdated if its routine.yaml was changed since.
    """
    proof = proof_of(files)
    return Trials() if proof is None else proof.left_out(files[ROUTINE])


def write_files(files: Mapping[str, str], folder: Path) -> None:
    """Write the files of a package, each at once; leave other files of the folder alone.

    A file that differs is kept as `NAME.old`: a person may have edited it.
    """
    folder = folder.resolve()
    if folder.exists() and not (folder / ROUTINE).exists() and any(folder.iterdir()):
        raise UsageError(
            "this folder is not empty and is not a routine package",
            place=str(folder),
            fix="name another",
        )
    folder.mkdir(parents=True, exist_ok=True)
    # Write the routine last: only with it is the folder a package.
    for name, text in sorted(files.items(), key=lambda item: item[0] == ROUTINE):
        beside = folder / f".{name}.{os.getpid()}"
        try:
            beside.write_text(text, encoding="utf-8", newline="\n")
            if name != PROOF:
                _set_aside(folder / name, text)
            os.replace(beside, folder / name)
        finally:
            beside.unlink(missing_ok=True)


def _set_aside(path: Path, new: str) -> None:
    """Rename a file that is about to be replaced by another text."""
    if path.is_file() and (old := path.read_bytes()) != new.encode():
        path.with_name(path.name + ".old").write_bytes(old)


def load_program(text: bytes, place: str) -> Program:
    """Parse, check and compile a routine. The same text is compiled once."""
    return _load(text, place)


@lru_cache(maxsize=128)
def _load(text: bytes, place: str) -> Program:
    try:
        program = Program(read_routine(parse_yaml(text, place), place))
    except RecursionError:
        raise RoutineError("the YAML is nested too deeply", place=place) from None
    _check_schemas(program.routine, place)
    return program


def _check_schemas(routine: Routine, place: str) -> None:
    """Raise for a schema that is none: everything behind this relies on its form."""
    for field in ("input_schema", "output_schema"):
        schema = getattr(routine, field)
        problem = None if schema is None else schema_problem(schema)
        if problem is not None:
            raise InvalidRoutine(f"not a valid JSON Schema: {problem}", place=f"{place}, {field}")
    for step in routine.all_steps:
        problem = None if step.expect is None else schema_problem(step.expect)
        if problem is not None:
            where = f"{place}, step {step.id}, field expect"
            raise InvalidRoutine(f"not a valid JSON Schema: {problem}", place=where)
    if routine.requests:
        from em.runner.template import parse_template
    for number, text in enumerate(routine.requests):
        try:
            parse_template(text)
        except RoutineError as error:
            raise InvalidRoutine(error.message, place=f"{place}, requests[{number}]") from None


def parse_yaml(text: bytes, place: str) -> Any:
    """Parse a YAML text; an error has its line."""
    return load_yaml(text, place, RoutineError)


# While the module is imported, by one thread: msgspec crashes when several threads prepare the same
# Struct at the same time, as the threads of a worker did with their first jobs.
msgspec.json.Decoder(Routine)


def read_routine(value: Any, place: str) -> Routine:
    """Convert a parsed YAML value to a routine. Raise the first problem; `validate` finds all."""
    try:
        return msgspec.convert(value, Routine)
    except msgspec.ValidationError as error:
        found = mismatch(error)
        raise InvalidRoutine(
            found.message,
            place=found.place(place, word=""),
            fix="`em routine validate` lists everything that is wrong with it; compile it again"
            " if an earlier em wrote it",
        ) from None


MAX_FILE = 16 * 1024 * 1024
_IN_MEMORY = "/dev/shm"  # noqa: S108 - a folder of its own is made there, for us alone


class KeptRoutine(Routine, frozen=True, kw_only=True):
    """A routine stored in a memory, with its name and version."""

    ref: str
    """`name@version`."""
    from_events: Sequence[str] = ()
    trials: Trials = Trials()
    """How it did on traces that it was not learnt from."""


def is_folder(routine: str | Path) -> bool:
    """Return whether this names a folder: it looks like a path, or such a folder exists."""
    is_path = isinstance(routine, Path) or any(sign in routine for sign in "/\\.")
    return is_path or Path(routine).is_dir()


def files_in(folder: str | Path) -> dict[str, str]:
    """Read the files of a package in a folder, by name."""
    Package(folder)  # raises if it can't run
    files: dict[str, str] = {}
    for path in sorted(Path(folder).iterdir()):
        if path.name == WRITTEN_BY and not path.is_file():
            # Without it a model's code would count as a person's.
            raise UsageError(
                "expected a file", place=str(path), fix="restore the one that em wrote"
            )
        if path.suffix not in (".yaml", ".py", ".json") or not path.is_file():
            continue
        if path.stat().st_size > MAX_FILE:
            raise UsageError(f"the file has more than {MAX_FILE:,} bytes", place=str(path))
        try:
            files[path.name] = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise UsageError("the file is not UTF-8 text", place=str(path)) from None
        except OSError as error:
            raise UsageError(f"can't read the file: {error.strerror}", place=str(path)) from None
    return files


def keep_routine(
    store: Store,
    files: Mapping[str, str],
    from_events: Sequence[str] = (),
    *,
    retired: bool = False,
    note: Draft | None = None,
    expected_pos: Mapping[str, int] | None = None,
) -> KeptRoutine:
    """Store a package as a new version; an unchanged package keeps its version.

    retired: store it out of use: its name still means the version before.
    note: an event that says why, in the same commit. expected_pos: as of a commit.
    """
    routine = read_routine(parse_yaml(files[ROUTINE].encode(), ROUTINE), ROUTINE)
    if not routine.name or any(sign in routine.name for sign in "@/\\."):
        raise UsageError(
            f"{routine.name!r} can't be the name of a stored routine",
            place=f"{ROUTINE}, name",
            fix="use a name without @, /, \\ and dots",
        )
    body: Json = {"files": _as_proved(store, routine.name, files)}
    draft = ArtefactDraft(
        kind=KIND, name=routine.name, body=body, from_events=from_events, retired=retired
    )
    notes = [*code_notes(files, routine.name, from_events), *([] if note is None else [note])]
    commit = Commit(
        artefacts=[draft],
        events=notes,
        expected_pos=expected_pos or {},
    )
    (artefact,) = store.commit(commit).artefacts
    return _kept(artefact)


def current_version(store: Store, name: str) -> Artefact:
    """Return the version that a name means; if none is in use, the newest."""
    found = [one for one in kept_routines(store, name) if one.body is not None]
    used = [one for one in found if one.retired_at is None] or found
    return used[-1] if used else find_routine(store, name)


def _as_proved(store: Store, name: str, files: Mapping[str, str]) -> dict[str, str]:
    """Return files with the proof of the newest version, in use or not, if only its date is new."""
    versions = [*kept_routines(store, name)]
    old = texts_of(versions[-1]) if versions and versions[-1].body is not None else {}
    is_same = {**old, PROOF: ""} == {**files, PROOF: ""}
    was, now = proof_of(old) if is_same else None, proof_of(files)
    if was is not None and now is not None and msgspec.structs.replace(now, at=was.at) == was:
        return old
    return dict(files)


def kept_routines(store: Store, name: str | None = None) -> Iterator[Artefact]:
    """Return every version of every stored routine, or of one."""
    return store.artefacts(KIND, name)


def find_routine(store: Store, ref: str) -> Artefact:
    """Find the stored routine `name@version`, or the newest version of `name`."""
    name, _, number = ref.partition("@")
    if number and not number.isdecimal():
        raise UsageError(
            f"a version must be a number, got {number!r}", place=ref, fix=f"write {name}@1"
        )
    artefact = store.artefact(KIND, name, int(number) if number else None)
    versions = [found.ref for found in store.artefacts(KIND, name)]
    if artefact is None and versions:
        usable = "" if number else "no version is in use; name one: "
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
        raise NotFound("it was erased together with what it was compiled from", place=ref)
    return artefact


def routine_of(artefact: Artefact) -> KeptRoutine:
    """Return the routine of an artefact."""
    if artefact.body is None:
        raise NotFound("it was erased", place=artefact.ref)
    return _kept(artefact)


def _ref_of(routine: str | Path | Routine) -> str:
    """Return the name of a stored routine; empty for a folder."""
    if isinstance(routine, Routine):
        return routine.ref if isinstance(routine, KeptRoutine) else routine.name
    return "" if is_folder(routine) else str(routine)


def _kept(artefact: Artefact) -> KeptRoutine:
    ref = artefact.ref
    files = texts_of(artefact)
    routine = read_routine(parse_yaml(files[ROUTINE].encode(), ref), ref)
    fields = {name: getattr(routine, name) for name in Routine.__struct_fields__}
    return KeptRoutine(**fields, ref=ref, from_events=artefact.from_events, trials=trials_of(files))


def texts_of(artefact: Artefact) -> dict[str, str]:
    """Return the files of a stored package."""
    try:
        files = msgspec.convert((artefact.body or {}).get("files"), dict[str, str])
    except msgspec.ValidationError:
        files = {}
    if ROUTINE not in files or any("/" in name or name.startswith(".") for name in files):
        raise RoutineError("this artefact is not a routine package", place=artefact.ref)
    return files


@contextmanager
def opened(store: Store, routine: str | Path | Routine) -> Iterator[Package]:
    """Open the package in a folder, or a stored one."""
    ref = _ref_of(routine)
    if isinstance(routine, Routine) or ref:
        with unpacked(store, ref) as package:
            yield package
    else:
        yield Package(routine)


@contextmanager
def unpacked(store: Store, ref: str) -> Iterator[Package]:
    """Unpack a stored package into a temporary folder; the block's end removes it."""
    artefact = find_routine(store, ref)
    with _folder_of(texts_of(artefact)) as name:
        ref = artefact.ref
        yield Package(name, stored=ref, database=store.database)


def _folder_of(files: Mapping[str, str]) -> "TemporaryDirectory[str]":
    """Make a temporary folder with these files; in memory where possible, so no disk has them."""
    import tempfile

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
    raise AssertionError("the second place either works or raises")
