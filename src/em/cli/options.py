"""Options that several commands share; the memory, routine and files that they name."""

import getpass
import os
import re
import shlex
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypedDict, TypeVar

import click
import msgspec

from em.cli.output import only_results_on_stdout
from em.errors import EmError, InputError, NotFound, UsageError
from em.log.event import Event
from em.log.summary import Cursor
from em.memory import Memory
from em.runner.tools import ToolRegistry
from em.runner.tools.permissions import settings_for
from em.settings import AllowSettings, Settings, memory_above, repository_root
from em.store.protocol import Store
from em.values.files import is_unicode, open_file, reading_from, shown, skip_bom
from em.values.times import moment

if TYPE_CHECKING:
    from em.llm.client import LlmClient
    from em.runner.package import Package

F = TypeVar("F", bound=Callable[..., Any])

_ALLOW = "Let declared tools {} this, in addition to what em.yaml allows. Repeatable."


def person() -> str:
    """Return the name of the person at the terminal, for the log."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""  # a container may run as nobody in particular


def added(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Return a decorator that adds options, which are listed in this order."""

    def add(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return add


selection = added(
    click.option("--stream", help="Only events of this stream."),
    click.option("--subject", help="Only events about this subject."),
    click.option("--kind", "kinds", multiple=True, help="Only this kind. Repeatable."),
    click.option("--since", metavar="TIME", help="Only events at or after this time."),
    click.option("--until", metavar="TIME", help="Only events before this time."),
)
"""The options that select events."""
with_tools = click.option(
    "--tools", metavar="MODULE|FILE", help="Python module whose functions are the tools."
)
answering = added(
    click.option("--allow-command", multiple=True, metavar="NAME", help=_ALLOW.format("run")),
    click.option(
        "--allow-folder", multiple=True, metavar="DIR", help=_ALLOW.format("read and change")
    ),
    click.option("--allow-host", multiple=True, metavar="HOST", help=_ALLOW.format("call")),
    click.option("--allow-env", multiple=True, metavar="NAME", help=_ALLOW.format("read")),
    click.option(
        "--answers",
        metavar="JSON|FILE",
        help="Answers as JSON, {step: {field: value}}, or a file with it; - for stdin.",
    ),
    click.option("--yes", is_flag=True, help="Answer yes to every confirmation."),
)
"""The options that answer a run's prompts and grant permissions."""


def limited(default: int, least: int = 1) -> Callable[[F], F]:
    """Add `-n`, the number of rows to show."""
    return click.option(
        "-n",
        "--limit",
        metavar="N",
        type=click.IntRange(min=least),
        default=default,
        show_default=True,
        help="How many to show.",
    )


def listing(default: int) -> Callable[[F], F]:
    """Add the options that every list of runs, traces and lessons takes."""
    return added(
        limited(default),
        click.option("--subject", help="Only those about this subject."),
        click.option("--since", metavar="TIME", help="Only those that began at or after this."),
        click.option("--until", metavar="TIME", help="Only those that began before this."),
        click.option("--cursor", metavar="CURSOR", help="Go on behind this, as a list says."),
    )


class Listed(TypedDict):
    """The options of `listing` as lists take them."""

    subjects: Sequence[str] | None
    since: datetime | None
    until: datetime | None
    before: Cursor | None


def listed(
    subject: str | None = None,
    since: str | None = None,
    until: str | None = None,
    cursor: str | None = None,
) -> Listed:
    """Read the options of `listing`."""
    return {
        "subjects": None if subject is None else [subject],
        "since": None if since is None else moment(since, "since"),
        "until": None if until is None else moment(until, "until"),
        "before": Cursor.of(cursor),
    }


def load_tools(source: str | None) -> ToolRegistry | None:
    """Load the functions that `--tools` names."""
    with only_results_on_stdout():
        return ToolRegistry.load(source) if source else None


def as_typed(shared: Mapping[str, Any]) -> str:
    """Return the options as they were typed, to be shown in a `resume` command."""
    typed: list[str] = []
    for name, value in shared.items():
        option = "--" + name.replace("_", "-")
        given = [value] if isinstance(value, str) else value or ()
        typed += [option] if value is True else [word for one in given for word in (option, one)]
    return " ".join(map(_quoted, typed))


def _quoted(word: str) -> str:
    """Quote a word for the shell; bytes that are not UTF-8 as bash and zsh take them: $'\\xff'."""
    if is_unicode(word):
        return shlex.quote(word)
    escaped = word.replace("\\", "\\\\").replace("'", "\\'")
    return f"$'{shown(escaped)}'"


def allowed(folder: Path, shared: Mapping[str, Any]) -> AllowSettings | None:
    """Return what the --allow options and em.yaml allow; None without such an option."""
    names = ("command", "folder", "host", "env")
    commands, folders, hosts, env = (list(shared[f"allow_{name}"]) for name in names)
    if not (commands or folders or hosts or env):
        return None
    more = AllowSettings(commands=commands, folders=folders, hosts=hosts, env=env)
    return settings_for(folder, None) + more


def open_memory(*, create: bool = False) -> Memory:
    """Open the memory that --db, EM_DB or em.yaml names. It is closed when the command ends."""
    ctx = click.get_current_context()
    try:
        memory = ctx.obj["memory"] = Memory(ctx.obj["db"], create=create)
    except NotFound as error:
        error.fix = _where_looked() or error.fix
        raise
    ctx.call_on_close(memory.close)
    return memory


def _where_looked() -> str:
    """Say where em looked for a memory, if there is one above the repository."""
    here = Path.cwd()
    above = None if database() or os.environ.get("EM_DB") else memory_above(here)
    if above is None:
        return ""
    db = shlex.quote(str(above / Settings().db))
    return f"em looks up to the repository's root, {repository_root(here)}; above it is: --db {db}"


def database() -> str | None:
    """Return the value of --db."""
    found: str | None = click.get_current_context().obj["db"]
    return found


def address() -> str:
    """Return the address of the memory that --db, EM_DB or em.yaml names; a path is absolute."""
    db = database() or Settings.load(tells=False).db
    return db if "://" in db else str(Path(db).expanduser().resolve())


def find_event(memory: Memory, given: str) -> Event:
    """Find an event by its id, or by its number in the log."""
    try:
        return memory.log.get(given)
    except NotFound as error:
        if not (given.isascii() and given.isdecimal() and len(given) < 19):
            raise
        number = int(given)
        for event in memory.log.read(after=number - 1, limit=1) if number else ():  # the first is 1
            if event.seq == number:
                return event
        raise NotFound(f"no event has the number {number}", fix=error.fix) from None


def find_package(routine: str, stack: ExitStack) -> "Package":
    """Open a routine by its folder or by its name in the memory, until the stack is closed."""
    from em.runner.package import Package, is_folder, opened

    if is_folder(routine):
        if not Path(routine).exists():
            raise UsageError("this folder does not exist", place=routine)
        return Package(routine)
    with known_routine(routine) as store:
        return stack.enter_context(opened(store, routine))


@contextmanager
def known_routine(routine: str) -> Iterator[Store]:
    """Open the store to look for a routine; raise UsageError if it is not there."""
    fix = "name a folder with a routine.yaml, or store a routine with `em compile --keep`"
    try:
        store = open_memory().store
        fix = ""
        yield store
    except NotFound as error:
        raise UsageError(
            f"no folder and no stored routine is called {routine!r}",
            place=routine,
            fix=fix or error.fix,
        ) from None


def is_file(name: str) -> bool:
    """Return whether what was typed is a file, and not the id of a trace or its beginning."""
    is_id = re.fullmatch("[0-9a-f]{4,28}", name) is not None
    return name == "-" or Path(name).exists() or not is_id


def model(*, wanted: bool) -> "LlmClient | None":
    """Return a client for the configured model if --llm was given."""
    if not wanted:
        return None
    from em.llm import get_llm_client

    return get_llm_client()


STDIN = "standard input"
SPOOL_BYTES = 32 * 1024 * 1024


@contextmanager
def reading(file: str) -> Iterator[tuple[IO[bytes], str]]:
    """Open a file, or standard input for `-`, as a seekable source; also yield its name.

    The source is at its first byte, behind the mark with which UTF-8 may begin.
    """
    if file == "-":
        with _spooled(_stdin()) as spool:
            yield spool, STDIN
        return
    with open_file(file) as source:
        mode = os.fstat(source.fileno()).st_mode
        if (stat.S_ISCHR(mode) and file != os.devnull) or stat.S_ISBLK(mode):
            raise InputError("expected a file, found a device", place=file, fix="name a file")
        if source.seekable():
            skip_bom(source)
            yield source, file
        else:
            with _spooled(source) as spool:
                yield spool, file


def standard_input() -> bytes:
    """Read standard input to its end."""
    with reading_from(STDIN):
        return _stdin().read()


def _stdin() -> IO[bytes]:
    if sys.stdin is None:  # closed by `<&-`
        raise UsageError("standard input is closed", fix="pipe the input in, or name a file")
    if sys.stdin.isatty():
        click.echo("reading from the keyboard; end with Ctrl-D", err=True)
    return sys.stdin.buffer


@contextmanager
def _spooled(source: IO[bytes]) -> Iterator[IO[bytes]]:
    """Copy a source that can be read only once, so that it can be read again."""
    import tempfile

    with tempfile.SpooledTemporaryFile(SPOOL_BYTES) as spool:
        while block := _block(source):
            spool.write(block)
        spool.seek(0)
        skip_bom(spool)
        yield spool


def _block(source: IO[bytes]) -> bytes:
    with reading_from(STDIN):
        return source.read(1 << 20)


@contextmanager
def writing(file: str, log: str) -> Iterator[IO[bytes]]:
    """Open a file for writing, or standard output for `-`. A file is replaced only at the end.

    log: the database in use, which is refused as a target. It may be empty where none is used.
    """
    if file == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(file).resolve()
    if path.is_dir():
        raise UsageError("expected a file, found a folder", place=file, fix="name a file in it")
    if log and str(path) in {str(Path(log + end).resolve()) for end in ("", "-wal", "-shm")}:
        raise UsageError("this is the log itself", place=file, fix="name another file")
    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as out:
                yield out
        else:
            with _replacing(path) as out:
                yield out
    except OSError as error:
        raise InputError(f"can't be written: {error.strerror}", place=file) from error


@contextmanager
def _replacing(path: Path) -> Iterator[IO[bytes]]:
    """Write to a temporary file in the same folder, and rename it at the end."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with beside.open("xb") as out:
            yield out
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def read_object(file: str) -> dict[str, Any]:
    """Read a JSON object from a file, from standard input for `-`, or from the word itself."""
    if file.lstrip().startswith("{"):
        return parse_object(file, "the JSON object that was typed")
    with reading(file) as (source, name):
        return parse_object(source.read(), name)


def read_objects(file: str) -> Iterator[dict[str, Any]]:
    """Read a JSON object from each line of a file; blank lines are skipped."""
    with reading(file) as (source, name):
        for number, line in enumerate(source, 1):
            if line.strip():
                yield parse_object(line, f"{name}:{number}")


def parse_object(
    text: bytes | str, place: str, error: type[EmError] = InputError, fix: str = ""
) -> dict[str, Any]:
    """Decode a JSON object, or raise `error` with the place."""
    if not text.strip():
        raise error("expected a JSON object, found nothing", place=place, fix=fix)
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
        raise error(f"expected a JSON object: {problem}", place=place, fix=fix) from None


def pairs(params: Sequence[str], option: str = "--param") -> dict[str, Any]:
    """Parse what was given as NAME=VALUE. Values are texts."""
    given: dict[str, Any] = {}
    for text in params:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise UsageError(f"expected NAME=VALUE, got {text!r}", place=option)
        given[name] = value
    return given
