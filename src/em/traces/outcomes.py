"""The outcome of a session by its last test run or push, where nothing else labels it.

A command counts if a table lists it. Its exit code decides where it is the exit code of the whole
command line; behind a pipe it is another program's, and then what the test run printed decides.
"""

import re
import shlex
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from em.errors import MissingExtra
from em.shell.syntax import Opaque, parse
from em.traces.trace import KeptTrace, Outcome, Trace
from em.values.canonical import Json


class CheckCommand(NamedTuple):
    """A command that shows whether the work is done.

    words: how its command line begins; the last word may have a `*`.
    failed, passed: what it prints, for where its exit code can't be seen. `failed` goes first.
    """

    words: str
    failed: str = ""
    passed: str = ""


_PYTEST = (r"\b[1-9]\d* (?:failed|errors?)\b", r"\b\d+ passed\b")
_UNITTEST = (r"^FAILED \(", r"^OK\b")
_JEST = (r"\bTests?:? .*[1-9]\d* failed", r"\bTests?:? .*\d+ passed")
CHECKS = tuple(CheckCommand(*row) for row in (
    ("pytest", *_PYTEST), ("py.test", *_PYTEST), ("tox", *_PYTEST),
    ("nox", *_PYTEST), ("unittest", *_UNITTEST),
    ("python manage.py test", *_UNITTEST),
    ("npm test", *_JEST), ("npm t", *_JEST), ("npm run test*", *_JEST),
    ("yarn test*", *_JEST), ("yarn run test*", *_JEST), ("pnpm test*", *_JEST),
    ("pnpm run test*", *_JEST), ("bun test", r"^\s*[1-9]\d* fail", r"^\s*\d+ pass"),
    ("bun run test*", *_JEST), ("jest", *_JEST), ("vitest", *_JEST),
    ("mocha", r"\b[1-9]\d* failing\b", r"\b\d+ passing\b"),
    ("playwright test", r"\b[1-9]\d* failed\b", r"\b\d+ passed\b"),
    ("deno test", r"^FAILED\b", r"^ok\b"), ("node --test*",),
    ("cargo test", r"test result: FAILED", r"test result: ok"), ("cargo nextest run",),
    ("go test", r"^(?:--- )?FAIL\b", r"^ok\s"),
    ("gradle test", r"BUILD FAILED", r"BUILD SUCCESSFUL"),
    ("./gradlew test", r"BUILD FAILED", r"BUILD SUCCESSFUL"),
    ("mvn test", r"BUILD FAILURE", r"BUILD SUCCESS"),
    ("mvn verify", r"BUILD FAILURE", r"BUILD SUCCESS"),
    ("dotnet test", r"^Failed!", r"^Passed!"), ("make test*",), ("make check*",),
    ("just test*",), ("ctest", r"[1-9]\d* tests failed", r"100% tests passed"),
    ("bazel test",), ("rspec", r"\b[1-9]\d* failures?\b", r"\b0 failures\b"),
    ("rake test",), ("rails test",), ("bin/rails test",), ("phpunit",),
    ("vendor/bin/phpunit",), ("mix test",), ("swift test",),
    ("git push", r"^error: |\[rejected\]|^fatal: ", r"^\s*\S+\.\.\S+\s+\S+ -> \S+"),
))  # fmt: skip
BEFORE = (
    "sudo", "time", "nice", "env", "command", "exec", "npx", "bunx", "uv run", "poetry run",
    "pipenv run", "hatch run", "pdm run", "pnpm exec", "yarn exec", "bundle exec", "xvfb-run",
    "python -m", "python3 -m", "coverage run -m",
)  # fmt: skip
"""What may stand before a command without changing what it is."""
NO_RUN = frozenset({
    "--version", "--help", "-h", "--collect-only", "--co", "--dry-run", "--list", "--no-run",
    "--listTests", "--fixtures",
})  # fmt: skip
"""Arguments with which nothing is tested or pushed."""

_NEEDED = frozenset(
    "test" if "test" in check.words else max(check.words.rstrip("*").split(), key=len)
    for check in CHECKS
)
"""Most commands are no checks: these two tell them without reading their words."""
_EXPECTED = tuple((check, check.words.split()) for check in CHECKS)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_SHELLS = frozenset({"bash", "sh", "zsh", "/bin/bash", "/bin/sh", "/bin/zsh", "/usr/bin/bash"})
_RUNNING = "Process running with session ID"


def command_of(args: Json) -> str:
    """Return the command line of a call, "" if it has none."""
    given = args.get("command", args.get("cmd"))
    if isinstance(given, list) and given and all(isinstance(word, str) for word in given):
        return _within_shell(given) or shlex.join(given)
    if not isinstance(given, str):
        return ""
    if given.partition(" ")[0] in _SHELLS:
        try:
            return _within_shell(shlex.split(given)) or given
        except ValueError:  # a quote that is not closed
            return given
    return given


def _within_shell(words: Sequence[str]) -> str:
    """Return the command line that a shell was started for, "" if there is none."""
    is_shell = len(words) == 3 and words[0] in _SHELLS and words[1] in ("-c", "-lc")
    return words[2] if is_shell else ""


def outcome_of_call(args: Json, result: Any, error: Any) -> Outcome | None:
    """Return what a call says about its session; None if it is neither a test run nor a push."""
    command = command_of(args)
    found = _last_check(command) if command else None
    if found is None:
        return None
    check, is_last = found
    text = error if isinstance(error, str) else result if isinstance(result, str) else ""
    if args.get("run_in_background") is True or _RUNNING in text[:300]:
        return "unknown"
    if is_last and (error is not None or result is not None):
        return "success" if error is None else "failure"
    if check.failed and re.search(check.failed, text, re.MULTILINE):
        return "failure"
    return "success" if check.passed and re.search(check.passed, text, re.MULTILINE) else "unknown"


def outcome_of(trace: Trace) -> Outcome:
    """Return how a trace ended: as it is labelled, else as its last test run or push shows."""
    if trace.outcome != "unknown":
        return trace.outcome
    shown: Outcome = "unknown"
    for call in trace.calls:
        shown = outcome_of_call(call.args, call.result, call.error) or shown
    return shown


class _SimpleCommand(NamedTuple):
    """A simple command of a command line. decides: its exit code may be that of the line."""

    words: Sequence[str]
    decides: bool = True


def outcome_of_kept(kept: KeptTrace) -> Outcome:
    """Return how a stored trace ended. What a person said about it counts first."""
    return outcome_of(kept.trace) if kept.label is None else kept.label.outcome


def _last_check(command: str) -> tuple[CheckCommand, bool] | None:
    """Return the last check of a command line, and whether its exit code is that of the line."""
    if not any(word in command for word in _NEEDED) or not _may_check(command):
        return None
    found: tuple[CheckCommand, bool] | None = None
    for words, decides in _simple_commands(command):
        check = check_of(words)
        if check is not None:
            found = check, decides
        elif found is not None:
            found = found[0], False
    return found


def _simple_commands(command: str) -> Iterable[_SimpleCommand]:
    """Return the simple commands of a command line, also those in blocks and substitutions."""
    try:
        script = parse(command)
    except (MissingExtra, Opaque):
        return ()  # nobody knows what it runs
    text = command.strip()
    is_grouped = text[0] in "({" and text[-1] in ")}"
    in_background = text.endswith("&")
    return [
        _SimpleCommand(
            [word.shown for word in one.words],
            one.join != "||" and not in_background and (is_grouped or not one.is_nested),
        )
        for one in script.commands
        if one.words
    ]


def _may_check(command: str) -> bool:
    """Return whether the words of a check stand in a command, in their order."""
    for check in CHECKS:
        at = 0
        for word in check.words.rstrip("*").split():
            at = command.find(word, at)
            if at < 0:
                break
        else:
            return True
    return False


def check_of(words: Sequence[str]) -> CheckCommand | None:
    """Return the check that a simple command is; None if it is none."""
    rest = _without_prefixes(words)
    if not rest or not NO_RUN.isdisjoint(rest):
        return None
    for check, expected in _EXPECTED:
        if len(rest) >= len(expected) and all(map(fnmatchcase, rest, expected)):
            return check
    return None


def _without_prefixes(words: Sequence[str]) -> Sequence[str]:
    """Return a simple command without assignments, `uv run`, `python -m` and the like."""
    before: Sequence[str] = ()
    while words and words != before:
        before = words
        if _ASSIGNMENT.match(words[0]):
            words = words[1:]
        elif words[0] == "timeout" and len(words) > 1:
            words = words[2:]
        elif words[0] == "git" and len(words) > 2 and words[1] in ("-C", "-c"):
            words = ["git", *words[3:]]
        else:
            given = next((p.split() for p in BEFORE if words[: len(p.split())] == p.split()), [])
            words = words[len(given) :]
            while given and words and words[0].startswith("-") and words[0] not in NO_RUN:
                words = words[1:]
    return words
