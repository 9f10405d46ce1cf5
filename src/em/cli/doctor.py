"""`em doctor`: check the installation, database, trust, extras and keys; `--llm` asks the model."""

import os
import platform
import shlex
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from importlib.metadata import (
    PackageNotFoundError,
    entry_points,
    packages_distributions,
    version,
)
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

import em
from em import telemetry
from em.cli.command import command
from em.cli.options import database, open_memory
from em.cli.output import emit, print_fields
from em.clients.installation import AGENTS, launch_in
from em.errors import EmError, NotFound, StoreCorrupt
from em.llm import get_llm_client
from em.llm.providers import provider_settings
from em.log.event import EventQuery
from em.settings import (
    FILE,
    MEMORY,
    Settings,
    is_folder_trusted,
    memory_folder,
    named_settings,
)
from em.store.protocol import Store

EXTRAS = {
    "anthropic": "anthropic",
    "openai": "openai",
    "server": "litestar",
    "postgres": "psycopg",
    "embed": "onnxruntime",
    "mcp": "mcp",
    "otel": "opentelemetry.sdk",
    "sandbox": "pydantic_monty",
    "shell": "tree_sitter_bash",
}
"""Each extra, and a module that is installed with it."""

KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "EM_LLM_API_KEY", "EM_API_TOKEN")
CORE = ("msgspec", "click", "rich", "PyYAML", "httpx", "google-re2", "snowballstemmer")
CODE_OF_A_MEMORY = ("classes and rules of states", "functions of routines")
"""What does not run of a memory that is not trusted."""
WORKS = "works"
OLDEST_SQLITE = (3, 35)
"""RETURNING came with it."""
CLOCKS_DIFFER = timedelta(minutes=5)
"""How far the clocks of machines that write to one memory may be apart."""
DISTRIBUTION = "em-core"
SCRIPT_BYTES = 4_096
"""How much of a program is read to see whether it starts em."""
LOW_SPACE = 256 * 1024 * 1024


@command("doctor")
@click.option("--deep", is_flag=True, help="Read every page of the database.")
@click.option("--llm", is_flag=True, help="Only ask the configured model one small question.")
def doctor(deep: bool, llm: bool) -> int:
    """Check the installation, the database, what you trust, extras and keys.

    Each problem comes with what to do about it. Exit code 1 if there is one. A note is about
    something that works less well than it could.

    --llm asks the model with a schema, as em asks all its questions, and prints its name, its
    answer, the time and the tokens. This is a real call: it costs a few tokens.
    """
    if llm:
        _ask_model()
        return 0
    database, problems = _database(deep=deep)
    sandboxes, clients = _sandboxes(), _clients()
    problems += [*_missing_extras(), *_old_sqlite(), *filter(None, clients.values())]
    problems += [*_foreign_commands(), *_foreign_packages()]
    report = {
        "ok": not problems,
        "versions": _versions(),
        "database": database,
        "trust": {"folder": _folder_trust(), "memory": _memory_trust()},
        "extras": {extra: _has(module) for extra, module in EXTRAS.items()},
        "sandboxes": sandboxes,
        "clients": {name: problem or WORKS for name, problem in clients.items()},
        "keys": {key: bool(os.environ.get(key)) for key in KEYS},
        "problems": problems,
        "notes": list(_sandbox_notes(sandboxes)),
    }
    end = "" if problems else "no problems found; `em log verify` also checks the events"
    emit(report, lambda: _print(report, end))
    return 1 if problems else 0


def _print(report: dict[str, Any], end: str) -> None:
    print_fields(report)
    if end:
        click.echo(end)


def _has(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # not even the package around it is there
        return False


def _versions() -> dict[str, str]:
    found = {"em": em.__version__, "python": platform.python_version()}
    for package in CORE:
        try:
            found[package.lower()] = version(package)
        except PackageNotFoundError:
            found[package.lower()] = "missing"
    return found


def _foreign_commands() -> Iterator[str]:
    """Say which program on the path is called em and is not this one."""
    found = shutil.which("em")
    if found is not None and not _is_this_em(Path(found)):
        yield (
            f"{found} is another program called em, and comes first on the path: remove it, put"
            f" {Path(sys.executable).parent} before it, or type {shlex.quote(sys.executable)} -m em"
        )


def _is_this_em(program: Path) -> bool:
    """Return whether a program is em: beside this Python, or a script that starts this package."""
    if program.resolve().parent in (Path(sys.executable).parent, Path(sys.prefix) / "bin"):
        return True
    try:
        with program.open("rb") as script:
            found = script.read(SCRIPT_BYTES)
            return b"em.cli" in found or b"-m em" in found
    except OSError:
        return False


def _foreign_packages() -> Iterator[str]:
    """Say which other distributions of this environment have a package or a command `em`."""
    for name in sorted({*packages_distributions().get("em", ())} - {DISTRIBUTION}):
        yield f"the package {name} also has a module em: pip uninstall {name}"
    for script in entry_points(group="console_scripts", name="em"):
        other = "" if script.dist is None else script.dist.name
        if other not in ("", DISTRIBUTION):
            yield f"the package {other} also installs a command em: pip uninstall {other}"


def _sandboxes() -> dict[str, str]:
    """Try each sandbox for code that a model wrote, in order of preference."""
    from em.runner.sandbox.sandbox import backends

    return {kind.name: kind.missing() or WORKS for kind in backends()}


def _sandbox_notes(found: Mapping[str, str]) -> Iterator[str]:
    """Say what is missing for code that a model wrote."""
    if found.get("bubblewrap", WORKS) != WORKS:
        yield f"the sandbox bubblewrap does not work: {found['bubblewrap']}"
    if WORKS not in found.values():
        yield (
            "no sandbox works, so code that a model wrote is refused:"
            " install bubblewrap, or pip install 'em-core[sandbox]'"
        )


def _missing_extras() -> Iterator[str]:
    """Say which extras the settings need and this installation lacks."""
    settings = Settings.load()
    needed = {
        "postgres": ("db", (database() or settings.db).startswith("postgres")),
        "embed": ("embed.use", settings.embed.use == "local"),
        "otel": (telemetry.ENDPOINT, bool(os.environ.get(telemetry.ENDPOINT))),
    }
    protocol = _protocol(settings)
    if protocol in EXTRAS:
        needed[protocol] = ("llm.provider", True)
    for extra, (setting, is_needed) in needed.items():
        if is_needed and not _has(EXTRAS[extra]):
            yield f"{setting} needs the extra '{extra}': pip install 'em-core[{extra}]'"


def _protocol(settings: Settings) -> str:
    """Return the protocol of the provider that the settings choose; empty without one."""
    if not settings.llm.provider:
        return ""
    with suppress(EmError):  # `em doctor --llm` says what is wrong with it
        return provider_settings(settings.llm.provider, settings).protocol or ""
    return ""


def _old_sqlite() -> Iterator[str]:
    """Say whether this Python's SQLite lacks what em needs."""
    found = sqlite3.sqlite_version
    mend = "install a newer Python, or one that is built with a newer SQLite"
    if tuple(map(int, found.split("."))) < OLDEST_SQLITE:
        oldest = ".".join(map(str, OLDEST_SQLITE))
        yield f"SQLite {found} is too old, em needs {oldest}: {mend}"
        return
    try:
        with closing(sqlite3.connect(":memory:")) as connection:
            connection.execute("CREATE VIRTUAL TABLE words USING fts5(word)")
    except sqlite3.OperationalError as error:
        yield f"SQLite {found} has no full-text search ({error}): {mend}"


def _clients() -> dict[str, str]:
    """Say for each coding agent with em whether its hooks can start it, or what is wrong."""
    found = {}
    for name, agent in AGENTS.items():
        launch = launch_in(agent)
        if launch is not None:
            problem = _start_problem(launch.em[0])
            found[name] = problem and f"{name} {problem}: run `em install {name}` again"
    return found


def _start_problem(program: str) -> str:
    """Say why a program can't start em; empty if it can."""
    if shutil.which(program) is None:
        return f"starts em by {program}, which is not there"
    try:
        done = subprocess.run(  # noqa: S603 - the program that the agent starts with every hook
            [program, "-P", "-m", "em", "--version"], capture_output=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"can't start em by {program}: {error}"
    return "" if done.returncode == 0 else f"starts em by {program}, which has no em"


def _database(*, deep: bool) -> tuple[dict[str, Any], list[str]]:
    chosen = {"chosen_by": _chosen_by()}  # raises for broken settings, not for the database
    try:
        health = open_memory().store.health(deep=deep)
    except NotFound as error:
        place = Path(error.place or ".").absolute()
        folder = next((one for one in place.parents if one.exists()), Path("/"))
        is_open = os.access(folder, os.W_OK | os.X_OK)
        problems = (
            []
            if is_open
            else [
                f"no memory can be made in {folder}, which you can't write: change its rights, or"
                " name another memory with EM_DB"
            ]
        )
        return {"location": error.place, **chosen, "state": "not made yet"}, problems
    except EmError as error:
        told = f"{error}: {error.fix}" if error.fix and error.fix not in str(error) else str(error)
        return {"location": error.place, **chosen, "state": error.code}, [told]
    problems = list(health.problems)
    if health.settings.get("access") == "read only":
        problems.append(
            f"{health.location} can only be read: give yourself the right to write it and its"
            " folder, or name another memory with EM_DB"
        )
    store = open_memory().store
    problems += _clock_problems(store)
    try:
        _ = store.database
    except StoreCorrupt as error:
        problems.append(str(error))
    if health.scrub_pending:
        problems.append("erased bodies are still on the disk: run `em forget --finish`")
    facts: dict[str, Any] = {
        "location": health.location,
        **chosen,
        "state": "ok" if not problems else "problems",
        "backend": f"{health.backend} {health.version}",
        "schema": health.schema,
        "events": health.events,
        "size_bytes": health.size_bytes,
        **health.settings,
    }
    folder = Path(health.location).absolute().parent
    if health.backend == "sqlite" and folder.is_dir():
        facts["free_bytes"] = shutil.disk_usage(folder).free
        if facts["free_bytes"] < LOW_SPACE:
            problems.append(
                f"the disk has only {facts['free_bytes']:,} bytes free: delete something, or"
                " move the memory to another disk and name it with EM_DB"
            )
    return facts, problems


def _clock_problems(store: Store) -> Iterator[str]:
    """Say whether the clock is behind what was recorded already."""
    now = datetime.now(UTC)
    for event in store.read(EventQuery(limit=1, newest=True)):
        ahead = event.recorded_at - now
        if ahead > CLOCKS_DIFFER:
            yield (
                f"the newest event was recorded at {event.recorded_at:%Y-%m-%d %H:%M}, which is"
                f" later than now ({now:%Y-%m-%d %H:%M}): set the clock of this machine"
            )


def _folder_trust() -> dict[str, Any]:
    """Say whether the em.yaml that counts here is trusted, and what is ignored if it is not."""
    folder = memory_folder()
    if not (folder / FILE).is_file():
        return {"state": f"there is no {FILE}", "ignored": []}
    named = list(named_settings(folder))
    if not named:
        return {"state": "names nothing that needs trust", "ignored": []}
    if is_folder_trusted(folder):
        return {"state": "trusted", "ignored": []}
    fix = f"read {folder / FILE}, then: em trust --folder {folder}"
    return {"state": "not trusted", "ignored": named, "fix": fix}


def _memory_trust() -> dict[str, Any]:
    """Say whether code that the memory holds may run, and what does not run if it may not."""
    try:
        found = open_memory().store.database
    except NotFound:
        return {"state": "not made yet", "ignored": []}
    except EmError as error:
        return {"state": error.code, "ignored": []}
    if found.is_trusted:
        return {"state": "trusted", "ignored": []}
    fix = f"if it is yours: em trust --memory --db {found.place}"
    return {"state": "not trusted", "ignored": [*CODE_OF_A_MEMORY], "fix": fix}


def _chosen_by() -> str:
    """Say why this memory is used: an option, a variable, or a folder from here upwards."""
    settings, folder = Settings.load(), memory_folder()
    if database() is not None:
        return "--db"
    if os.environ.get("EM_DB"):
        return "EM_DB"
    place = folder.resolve()
    if settings.db != str(folder / Settings().db):
        return f"em.yaml in {place}"
    if (folder / MEMORY).is_dir() or (folder / FILE).is_file():
        return f"the nearest folder with {MEMORY} or {FILE}: {place}"
    is_root = (folder / ".git").exists()
    return f"the repository's root: {place}" if is_root else f"this folder: {place}"


QUESTION = "Is this connection working? Answer with the word yes."
SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "string"}},
    "required": ["answer"],
    "additionalProperties": False,
}


@command("smoke-llm")
def smoke_llm() -> None:
    """Ask the configured model one small question: `em doctor --llm`."""
    _ask_model()


def _ask_model() -> None:
    client = get_llm_client()
    # Room for models that think before they answer.
    answer = client.complete(QUESTION, schema=SCHEMA, max_tokens=4096)
    report = {
        "provider": client.provider,
        "model": answer.model,
        "answer": answer.value["answer"],
        "tokens": answer.usage,
        "cost_usd": answer.cost_usd,
        "seconds": round(answer.seconds, 3),
        "attempts": answer.attempts,
    }

    emit(report)
