"""Coding sessions become routines of plain steps: what all of them explain, and nothing else."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from shutil import which
from typing import Any

import pytest

from em.compiler.learner import Learnt
from em.compiler.session_routine import learn_sessions
from em.errors import RoutineError
from em.runner.engine import run_routine
from em.runner.tools import coding
from em.settings import AllowSettings
from em.traces.trace import Message, Mission, ToolCall, Trace

Files = Mapping[str, str]
ALLOW = AllowSettings(folders=["."], commands=["bash", "git", "grep"])


class Work:
    """A session that is written down as Claude Code does; its files are known."""

    def __init__(self, goal: str, files: Files, at: str | None = "2026-03-01T11:00:00Z") -> None:
        self.files, self.goal, self._at = dict(files), goal, at
        self.events: list[Any] = [Message(role="user", text=goal)]

    def call(self, tool: str, args: dict[str, Any], result: str, error: str | None = None) -> None:
        one = ToolCall(tool=tool, args=args, result=result, started_at=self._at, error=error)
        self.events.append(one)

    def read(self, path: str) -> None:
        rows = self.files[path].splitlines()
        shown = "\n".join(f"{n:6}→{row}" for n, row in enumerate(rows, 1))
        self.call("Read", {"file_path": f"/srv/{path}"}, shown)

    def edit(self, path: str, old: str, new: str) -> None:
        assert self.files[path].count(old) == 1
        self.files[path] = self.files[path].replace(old, new)
        given = {"file_path": f"/srv/{path}", "old_string": old, "new_string": new}
        self.call("Edit", given, "updated")

    def write(self, path: str, text: str) -> None:
        what = "updated" if path in self.files else "created"
        self.files[path] = text
        self.call("Write", {"file_path": f"/srv/{path}", "content": text}, f"File {what}")

    def change(self, path: str, text: str) -> None:
        """Read a file, and write it as a whole."""
        self.read(path)
        self.write(path, text)

    def bash(self, command: str, result: str = "", code: int = 0) -> None:
        error = f"Exit code {code}\n{result}" if code else None
        self.call("Bash", {"command": command}, result, error)

    @property
    def trace(self) -> Trace:
        return Trace(
            app={"cwd": "/srv"}, mission=Mission(self.goal), events=self.events, outcome="success"
        )


def learnt(works: Sequence[Work]) -> Learnt:
    return learn_sessions("work", [one.trace for one in works])


def run(
    found: Learnt, given: str | dict[str, Any], files: Files, folder: Path
) -> tuple[str, dict[str, str]]:
    """Run a routine on these files; return its status and all files after it."""
    package, project = folder / "package", folder / "project"
    package.mkdir(parents=True)
    (package / "routine.yaml").write_text(json.dumps(found.routine))
    for file, text in files.items():
        (project / file).parent.mkdir(parents=True, exist_ok=True)
        (project / file).write_text(text)
    project.mkdir(exist_ok=True)
    inputs = {"request": given} if isinstance(given, str) else given
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(project)
        result = run_routine(package, inputs, allow=ALLOW)
    after = {
        str(path.relative_to(project)): path.read_text()
        for path in project.rglob("*")
        if path.is_file() and ".git" not in path.parts and "cache" not in str(path)
    }
    return result.status, after


def inputs(found: Learnt) -> list[str]:
    return [*found.routine["input_schema"]["properties"]]


def tools(found: Learnt) -> list[str]:
    return [step["tool"].partition("_")[0] for step in found.routine["steps"] if "tool" in step]


# --- an entry with a day --------------------------------------------------------------------------

LOG = "# Log\n\n## 1.0 (2025-01-01)\n\n- first\n"
VERSIONS = ["1.2.0", "2.5.1", "3.3.7", "4.0.9"]
DAYS = ["2026-03-01", "2026-03-09", "2026-04-02", "2026-05-05"]
AT = "2026-03-01T11:00:00Z"


def logged(
    version: str,
    written: str = "soon",
    at: str | None = AT,
    *,
    looks: Sequence[str] = (),
    file: str = "LOG.md",
    words: str = "Log version {}.",
    whole: bool = False,
) -> Work:
    work = Work(words.format(version), {file: LOG}, at)
    for look in looks:
        work.bash(look, "some text")
    entry = f"## {version} ({written})\n\n- more\n\n"
    if whole:
        work.change(file, LOG.replace("## 1.0 (", f"{entry}## 1.0 ("))
    else:
        work.read(file)
        work.edit(file, "## 1.0 (", f"{entry}## 1.0 (")
    return work


def entered(version: str, written: str = "soon") -> dict[str, str]:
    return {"LOG.md": LOG.replace("## 1.0", f"## {version} ({written})\n\n- more\n\n## 1.0")}


def test_the_day_of_each_session_is_the_day_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = zip(VERSIONS, DAYS, strict=True)
    found = learnt([logged(version, day, f"{day}T11:00:00Z") for version, day in pairs])
    monkeypatch.setattr(coding, "now", lambda: datetime.fromisoformat("2027-06-07T11:00:00+00:00"))
    made = run(found, "Log version 9.9.9.", {"LOG.md": LOG}, tmp_path)
    assert made == ("ok", entered("9.9.9", "2027-06-07"))


def test_a_day_that_all_sessions_share_may_be_the_day_or_a_constant(tmp_path: Path) -> None:
    found = learnt([logged(version, DAYS[0], f"{DAYS[0]}T11:00:00Z") for version in VERSIONS])
    made = run(found, "Log version 9.9.9.", {"LOG.md": LOG}, tmp_path)
    assert made == ("needs_input", {"LOG.md": LOG})


def test_a_date_is_not_learnt_from_sessions_of_unknown_days() -> None:
    with pytest.raises(RoutineError, match="new_string"):
        learnt([logged(version, DAYS[0], None) for version in VERSIONS])


def test_a_date_that_is_not_the_day_is_asked_for() -> None:
    pairs = zip(VERSIONS, DAYS, strict=True)
    found = learnt([logged(version, day, "2026-07-07T11:00:00Z") for version, day in pairs])
    assert (inputs(found), found.asked) == (["version", "date"], ["date"])


def test_looking_around_is_no_other_way(tmp_path: Path) -> None:
    looks = [(), ("ls",), ("git status", "ls -la"), ("cat README.md | head -3",)]
    works = [logged(v, looks=look) for v, look in zip(VERSIONS, looks, strict=True)]
    found = learnt(works)
    assert tools(found) == ["FileText", "Insert"]
    made = run(found, "Log version 9.9.9.", {"LOG.md": LOG}, tmp_path)
    assert made == ("ok", entered("9.9.9"))


def test_a_session_that_wrote_the_whole_file_did_the_same(tmp_path: Path) -> None:
    works = [logged(version, whole=number == 1) for number, version in enumerate(VERSIONS)]
    made = run(learnt(works), "Log version 9.9.9.", {"LOG.md": LOG}, tmp_path)
    assert made == ("ok", entered("9.9.9"))


@pytest.mark.parametrize(
    ("request_words", "text"),
    [
        ("Log version v9.9.9.", LOG),
        ("Log version 9.9.9 and 9.9.8.", LOG),
        ("Log version 9.9.9, if it is out.", LOG),
        ("Log version 9.9.9.", "# Log\n"),
        ("Log version 9.9.9.", "# Log\n\nAll versions.\n"),
        ("Log version 9.9.9.", LOG.replace("## 1.0", "## Unreleased\n\n## 1.0")),
        ("Log version 1.0.", LOG),
    ],
)
def test_what_no_session_shows_changes_nothing(
    tmp_path: Path, request_words: str, text: str
) -> None:
    status, after = run(learnt([*map(logged, VERSIONS)]), request_words, {"LOG.md": text}, tmp_path)
    assert (status, after) == ("needs_input", {"LOG.md": text})


WORDINGS = ["log {}", "{} is out, write it down", "please note that we have {}", "New: {}"]


def worded(*wordings: str) -> list[Work]:
    versions = [f"{number}.2.{number + 3}" for number in range(len(wordings))]
    return [logged(one, words=words) for one, words in zip(versions, wordings, strict=True)]


def test_what_each_prompt_says_in_its_own_words_is_an_input_by_name(tmp_path: Path) -> None:
    found = learnt(worded(*WORDINGS))
    assert inputs(found) == ["version"]
    made = run(found, {"version": "9.9.9"}, {"LOG.md": LOG}, tmp_path)
    assert made == ("ok", entered("9.9.9"))


@pytest.mark.parametrize("version", ["v9.9.9", "", "9.9.9\n## 8", "the next one"])
def test_an_input_must_look_like_what_was_written(tmp_path: Path, version: str) -> None:
    found = learnt(worded(*WORDINGS))
    made = run(found, {"version": version}, {"LOG.md": LOG}, tmp_path)
    assert made == ("needs_input", {"LOG.md": LOG})


def test_a_prompt_is_read_in_every_recorded_wording(tmp_path: Path) -> None:
    found = learnt(worded(*WORDINGS))
    status, after = run(found, "9.9.9 is out, write it down", {"LOG.md": LOG}, tmp_path / "a")
    assert (status, after) == ("ok", entered("9.9.9"))
    made = run(found, "9.9.9 is out, write it down tomorrow", {"LOG.md": LOG}, tmp_path / "b")
    assert made == ("needs_input", {"LOG.md": LOG})


def test_a_version_that_not_every_prompt_says_is_asked_for() -> None:
    others = [logged(version, words="log the next one") for version in VERSIONS[1:]]
    found = learnt([*worded("log {}"), *others])
    assert found.asked == ["version"]
    assert {*found.routine["requests"]} == {"log {version}", "log the next one"}


def test_a_ticket_that_no_input_takes_is_no_words_of_a_prompt(tmp_path: Path) -> None:
    words = [f"log {{}}, ticket T-{number}1" for number in range(1, 1 + len(VERSIONS))]
    found = learnt(
        [logged(one, words=text.format(one)) for one, text in zip(VERSIONS, words, strict=True)]
    )
    assert "T-11" not in str(found.routine["requests"])
    told = run(found, words[0].format(VERSIONS[0]), {"LOG.md": LOG}, tmp_path / "a")
    assert told == ("ok", entered(VERSIONS[0]))
    made = run(found, words[0].format("9.9.9"), {"LOG.md": LOG}, tmp_path / "b")
    assert made == ("needs_input", {"LOG.md": LOG})


def test_two_sessions_are_enough_where_they_show_it(tmp_path: Path) -> None:
    found = learnt([*map(logged, VERSIONS[:2])])
    made = run(found, "Log version 9.9.9.", {"LOG.md": LOG}, tmp_path / "a")
    assert made == ("ok", entered("9.9.9"))
    made = run(found, "Log version v9.9.9.", {"LOG.md": LOG}, tmp_path / "b")
    assert made == ("needs_input", {"LOG.md": LOG})


def test_one_session_is_too_few() -> None:
    with pytest.raises(RoutineError, match="at least 2"):
        learnt([*map(logged, VERSIONS[:1])])


def test_sessions_that_did_something_else_are_refused() -> None:
    works = [*map(logged, VERSIONS)]
    works[2].bash("git push")
    with pytest.raises(RoutineError, match="different effects"):
        learnt(works)


def test_a_file_that_nothing_explains_is_asked_for(tmp_path: Path) -> None:
    names = ["A.md", "LOG.md", "NEWS.md", "WHY.md"]
    works = [logged(v, file=name) for v, name in zip(VERSIONS, names, strict=True)]
    found = learnt(works)
    assert found.asked == ["file"]
    given = {"version": "9.9.9", "file": "LOG.md"}
    assert run(found, given, {"LOG.md": LOG}, tmp_path) == ("ok", entered("9.9.9"))


# --- a value that is replaced ---------------------------------------------------------------------

RELEASES = [("1.4.2", "1.5.0"), ("0.3.9", "0.4.0"), ("7.0.0", "7.0.1"), ("2.1.4", "3.0.0")]
RELEASE = "Release {}."


def project(version: str) -> dict[str, str]:
    return {
        "package.json": f'{{\n  "name": "kite",\n  "version": "{version}",\n  "main": "k.js"\n}}\n',
        "README.md": f"# kite\n\nnpm install kite@{version}\n",
    }


def released() -> Learnt:
    works = []
    for old, new in RELEASES:
        work = Work(RELEASE.format(new), project(old))
        for file, text in project(new).items():
            work.change(file, text)
        works.append(work)
    return learnt(works)


def test_a_value_is_replaced_in_each_file_that_had_it(tmp_path: Path) -> None:
    made = run(released(), RELEASE.format("9.9.0"), project("9.8.1"), tmp_path)
    assert made == ("ok", project("9.9.0"))


@pytest.mark.parametrize(
    "changed",
    [
        {"package.json": project("9.8.1")["package.json"].replace("k.js", "k-9.8.1.js")},
        {"README.md": project("9.8.1")["README.md"] + "\nOr take kite 9.8.1 by hand.\n"},
        {"README.md": project("8.0.0")["README.md"]},
    ],
    ids=["twice in a file", "twice in another file", "another one in another file"],
)
def test_nobody_knows_what_becomes_of_a_second_one(changed: Files, tmp_path: Path) -> None:
    files = {**project("9.8.1"), **changed}
    assert run(released(), RELEASE.format("9.9.0"), files, tmp_path) == ("needs_input", files)


# --- a search that found what was changed ---------------------------------------------------------

NAMES = [("ttl", "seconds"), ("conns", "pool_size"), ("dir", "folder"), ("host", "mail_host")]
RENAME = "Rename the key {} to {}."


def settings(name: str) -> dict[str, str]:
    return {"app.yaml": f"debug: no\n{name}: x\n", "docs.md": f"# Keys\n\n- `{name}`: see there\n"}


def renamed() -> Learnt:
    works = []
    for old, new in NAMES:
        work = Work(RENAME.format(old, new), settings(old))
        work.bash(
            f"grep -rnw {old} .", f"./app.yaml:2:{old}: x\n./docs.md:3:- `{old}`: see there\n"
        )
        for file, text in settings(new).items():
            work.change(file, text)
        works.append(work)
    return learnt(works)


def test_what_a_search_found_is_changed(tmp_path: Path) -> None:
    found = renamed()
    assert sorted(inputs(found)) == ["key", "new_key"]
    made = run(found, RENAME.format("page", "sheet"), settings("page"), tmp_path)
    assert made == ("ok", settings("sheet"))


def test_a_file_that_no_session_changed_is_not_passed_over(tmp_path: Path) -> None:
    files = {**settings("page"), "code.go": 'var key = "page"\n'}
    made = run(renamed(), RENAME.format("page", "sheet"), files, tmp_path)
    assert made == ("needs_input", files)


# --- a line of a list -----------------------------------------------------------------------------

ADD = "Allow {}."


def hosts(*names: str, tail: str = "") -> str:
    rows = "".join(f'    "{name}",\n' for name in names)
    return f"TIMEOUT = 30\n\nHOSTS = [\n{rows}]\n\nRETRIES = 3\n{tail}"


def allowed(*orders: tuple[Sequence[str], Sequence[str]]) -> Learnt:
    """Learn from sessions that make one list of another."""
    works = []
    for before, after in orders:
        (new,) = {*after} - {*before}
        work = Work(ADD.format(new), {"hosts.py": hosts(*before)})
        work.change("hosts.py", hosts(*after))
        works.append(work)
    return learnt(works)


APPENDED = [
    ("zebra.example", "ape.example", "otter.example"),
    ("yak.example", "heron.example"),
    ("wolf.example", "toad.example", "badger.example"),
    ("lynx.example", "emu.example", "ox.example", "stoat.example"),
]
IN_ORDER = [
    ("ape.example", "heron.example", "otter.example"),
    ("emu.example", "gnu.example"),
    ("badger.example", "lynx.example", "wolf.example"),
    ("cat.example", "ox.example", "stoat.example"),
]


def appended(orders: Sequence[Sequence[str]]) -> Learnt:
    return allowed(*((names[:-1], names) for names in orders))


def test_a_line_is_added_at_the_end_of_a_list(tmp_path: Path) -> None:
    files = {"hosts.py": hosts("rat.example", "cat.example")}
    made = run(appended(APPENDED), ADD.format("mole.example"), files, tmp_path)
    assert made == ("ok", {"hosts.py": hosts("rat.example", "cat.example", "mole.example")})


@pytest.mark.parametrize(
    "text",
    [
        hosts("rat.example", "mole.example"),
        hosts("rat.example").replace("    ", "  "),
        hosts("rat.example", tail='\nOTHERS = [\n    "cat.example",\n]\n'),
        hosts("rat.example").replace("]\n", "] + MORE\n"),
        'HOSTS = ["rat.example"]\n',
    ],
    ids=["there already", "other indentation", "two lists", "another end", "on one line"],
)
def test_another_list_is_left_alone(text: str, tmp_path: Path) -> None:
    files = {"hosts.py": text}
    made = run(appended(APPENDED), ADD.format("mole.example"), files, tmp_path)
    assert made == ("needs_input", files)


def test_a_list_that_was_always_in_order_may_have_to_stay_so(tmp_path: Path) -> None:
    files = {"hosts.py": hosts("cat.example", "rat.example")}
    found = appended(IN_ORDER)
    made = run(found, ADD.format("mole.example"), files, tmp_path / "a")
    assert made == ("needs_input", files)
    made = run(found, ADD.format("tern.example"), files, tmp_path / "b")
    assert made == ("ok", {"hosts.py": hosts("cat.example", "rat.example", "tern.example")})


def test_a_line_is_added_where_its_place_is_in_order(tmp_path: Path) -> None:
    orders = []
    added = ["otter.example", "heron.example", "badger.example", "stoat.example"]
    for new, others in zip(added, ("az", "dg", "ax", "px"), strict=True):
        before = [f"{sign}-host.example" for sign in others]
        orders.append((before, sorted([*before, new])))
    files = {"hosts.py": hosts("cat.example", "rat.example")}
    made = run(allowed(*orders), ADD.format("mole.example"), files, tmp_path)
    assert made == ("ok", {"hosts.py": hosts("cat.example", "mole.example", "rat.example")})


# --- checks that sessions ran ---------------------------------------------------------------------

PASSES = "from pathlib import Path\nimport sys\nsys.exit(Path('broken').exists())\n"
PROJECT = {
    "LOG.md": LOG,
    "check.py": PASSES,
    "check.sh": "test ! -e broken\n",
    "test_it.py": "from pathlib import Path\ndef test(): assert not Path('broken').exists()\n",
    "Makefile": "test lint:\n\t@test ! -e broken\n",
    "package.json": '{"scripts": {"test": "test ! -e broken"}}\n',
}
COMMIT = 'git add -A && git commit -q -m "Log version {}"'
CHECKS = [
    ("pytest -q", COMMIT),
    ("python -m pytest -q 2>&1 | tail -3", COMMIT),
    ("make test", COMMIT),
    ("make lint", COMMIT),
    pytest.param("npm test", COMMIT, marks=pytest.mark.skipif(not which("npm"), reason="no npm")),
    ("git diff --check && git status --short", COMMIT),
    ("test ! -e broken", COMMIT),
    ("python check.py", COMMIT),
    ("./check.sh", COMMIT),
    ("find . -name broken | wc -l | grep -qx 0", COMMIT),
    ("", f"pytest -q && {COMMIT}"),
    ("", f"make test | tail -1; {COMMIT}"),
    ("", f"set -e\npytest -q\n{COMMIT}"),
    ("", "if pytest -q; then git add -A; git commit -q -m log; fi"),
    ("pytest -q || echo FAILED", COMMIT),
    ("pytest -q || true", COMMIT),
    ("pytest -q && echo OK || echo FAILED", COMMIT),
    ('make test; echo "exit $?"', COMMIT),
    ("if pytest -q; then echo good; else echo bad; fi", COMMIT),
    ("(pytest -q) || { echo FAILED; }", COMMIT),
    ("(pytest -q || echo FAILED) 2>&1 | tail -2", COMMIT),
    ("make lint >/dev/null || echo lint >&2; make test || printf 'failed\\n'", COMMIT),
    ("cd . && timeout 60 pytest -q || echo FAILED", COMMIT),
    ("pytest -q -x | head -50 || :", COMMIT),
    ("git diff --check || echo whitespace", COMMIT),
    ("make test || python -c 'print(1)'", COMMIT),
    ('bash -c "make test" || cat test.log', COMMIT),
    ("", f"(make test || echo FAILED) && {COMMIT}"),
    ("", f"pytest -q || true; {COMMIT}"),
]
PRINTED = [
    ("test -e broken && echo BROKEN || echo clean", "clean"),
    ("ls broken 2>/dev/null || echo none", "none"),
    ("make test 2>&1 || true", ""),
    ("for one in test lint; do make $one || echo $one failed; done", ""),
    ("make test & wait", ""),
]


def committed(check: str, commit: str, shown: str = "3 passed in 0.1{}s") -> Learnt:
    works = []
    for number, version in enumerate(VERSIONS):
        work = logged(version)
        if check:
            work.bash(check, shown.format(number))
        work.bash(commit.format(version), "[main 1234abc] Log")
        works.append(work)
    return learnt(works)


def commits(found: Learnt, files: Files, folder: Path) -> tuple[str, int]:
    """Run a routine in a repository; return its status and how many commits there are then."""
    project = folder / "project"
    project.mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(project)
        for file, text in files.items():
            Path(file).write_text(text)
        Path("check.sh").chmod(0o755)
        for command in ("init -q .", "config user.email a@b.c", "config user.name a", "add -N ."):
            subprocess.run(["git", *command.split()], check=True)
    status, _ = run(found, {"version": "9.9.9"}, files, folder)
    log = ["git", "rev-list", "--all", "--count"]
    done = subprocess.run(log, cwd=project, capture_output=True, text=True, check=True)
    return status, int(done.stdout)


@pytest.mark.parametrize(("check", "commit"), CHECKS)
def test_nothing_is_committed_if_a_check_fails(check: str, commit: str, tmp_path: Path) -> None:
    found = committed(check, commit)
    assert commits(found, PROJECT, tmp_path / "good") == ("ok", 1)
    assert commits(found, {**PROJECT, "broken": "trailing \n"}, tmp_path / "bad")[1] == 0


@pytest.mark.parametrize(("check", "shown"), PRINTED)
def test_nothing_is_committed_if_a_check_prints_something_else(
    check: str, shown: str, tmp_path: Path
) -> None:
    found = committed(check, COMMIT, shown)
    assert commits(found, PROJECT, tmp_path / "good") == ("ok", 1)
    assert commits(found, {**PROJECT, "broken": "trailing \n"}, tmp_path / "bad")[1] == 0


def test_a_check_that_only_its_output_tells_must_print_the_same() -> None:
    with pytest.raises(RoutineError) as raised:
        committed("make test & wait", COMMIT)
    assert raised.value.code == "unseen_end"
    works = [logged(version) for version in VERSIONS]
    for number, work in enumerate(works):
        work.bash("for one in test lint; do make $one; done; git push", f"pushed {number}")
    with pytest.raises(RoutineError) as raised:
        learnt(works)
    assert raised.value.code == "unseen_end"


@pytest.mark.parametrize("check", ["pytest -q", "git diff --check"])
def test_a_check_that_one_session_ran_before_its_commit_is_a_step(check: str) -> None:
    works = [logged(version) for version in VERSIONS]
    works[2].bash(check, "3 passed")
    for work, version in zip(works, VERSIONS, strict=True):
        work.bash(COMMIT.format(version))
    assert tools(learnt(works)) == ["FileText", "Insert", check.partition(" ")[0], "git", "git"]


def test_a_check_that_failed_in_a_session_is_no_step() -> None:
    works = [logged(version) for version in VERSIONS]
    for number, (work, version) in enumerate(zip(works, VERSIONS, strict=True)):
        work.bash("pytest -q", "1 failed" if number == 2 else "3 passed", code=int(number == 2))
        work.bash(COMMIT.format(version))
    assert tools(learnt(works)) == ["FileText", "Insert", "git", "git"]


def test_what_cannot_fail_is_no_check() -> None:
    works = [logged(version) for version in VERSIONS]
    for work in works:
        work.bash("echo; pwd; echo done", "done")
    assert tools(learnt(works)) == ["FileText", "Insert"]


def test_a_check_takes_the_values_of_the_run(tmp_path: Path) -> None:
    works = [logged(version) for version in VERSIONS]
    for work, version in zip(works, VERSIONS, strict=True):
        work.bash(f"grep -q {version} LOG.md")
    made = run(learnt(works), {"version": "9.9.9"}, {"LOG.md": LOG}, tmp_path)
    assert made == ("ok", entered("9.9.9"))


def test_a_look_around_before_the_first_change_is_no_step() -> None:
    works = []
    for version in VERSIONS:
        work = Work(f"Log version {version}.", {"LOG.md": LOG})
        work.bash("pytest -q", f"3 passed in {version}s")
        work.read("LOG.md")
        work.edit("LOG.md", "## 1.0 (", f"## {version}\n\n## 1.0 (")
        works.append(work)
    assert tools(learnt(works)) == ["FileText", "Insert"]


# --- inputs ---------------------------------------------------------------------------------------

ROUTES = "from app import users\n\nROUTES = {\n    # routes\n}\n"
RESOURCES = ["books", "maps", "songs", "plays"]


def routed(words: str) -> Learnt:
    works = []
    for name in RESOURCES:
        work = Work(words.format(name=name, prefix=f"/{name}"), {"routes.py": ROUTES})
        work.change("routes.py", ROUTES.replace("}\n", f'    "/{name}": {name}.router,\n}}\n'))
        works.append(work)
    return learnt(works)


def test_two_values_that_always_moved_together_are_one_input(tmp_path: Path) -> None:
    words = "Add the resource {name} under {prefix}."
    found = routed(words)
    assert inputs(found) == ["resource"]
    files = {"routes.py": ROUTES}
    made = run(found, words.format(name="films", prefix="/films"), files, tmp_path / "a")
    after = ROUTES.replace("}\n", '    "/films": films.router,\n}\n')
    assert made == ("ok", {"routes.py": after})
    made = run(found, words.format(name="films", prefix="/cinema"), files, tmp_path / "b")
    assert made == ("needs_input", files)


@pytest.mark.parametrize(
    "words",
    ["Release {} please", "{} please, release it", "Please: {}", "release_{}_please", "({})"],
)
def test_inputs_are_named_after_what_they_feed(words: str) -> None:
    found = learnt([logged(version, words=words) for version in VERSIONS])
    assert inputs(found) == ["version"]


# --- new files ------------------------------------------------------------------------------------

TITLES = ["Weekly Report", "Release Plan", "Data Retention", "On-call Guide"]


def page(title: str) -> str:
    line = "=" * 20
    return f"# {title}\n\n{line}\n\nOwner: docs\n\n## About {title.lower()}\n\nTo be written.\n"


def slug(title: str) -> str:
    return title.lower().replace(" ", "-")


def paged() -> Learnt:
    works = []
    for title in TITLES:
        index = "# Pages\n\n- [Home](home.md)\n"
        work = Work(f'Add a page "{title}".', {"docs/index.md": index})
        work.write(f"docs/{slug(title)}.md", page(title))
        work.change("docs/index.md", f"{index}- [{title}]({slug(title)}.md)\n")
        works.append(work)
    return learnt(works)


def test_a_new_file_is_a_template_and_its_name_a_slug(tmp_path: Path) -> None:
    found = paged()
    assert inputs(found) == ["page"]
    files = {"docs/index.md": "# Pages\n\n- [Home](home.md)\n"}
    made = run(found, 'Add a page "Error Budget".', files, tmp_path)
    assert made == (
        "ok",
        {
            "docs/index.md": f"{files['docs/index.md']}- [Error Budget](error-budget.md)\n",
            "docs/error-budget.md": page("Error Budget"),
        },
    )


def test_a_file_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    files = {"docs/index.md": "# Pages\n\n- [Home](home.md)\n", "docs/error-budget.md": "mine\n"}
    made = run(paged(), 'Add a page "Error Budget".', files, tmp_path)
    assert made == ("needs_input", files)


# --- parts of lines, lists and texts --------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [LOG.replace("\n", "\r\n"), "", LOG.replace("# Log\n", "# Log\n\n## 1.0 (2025-01-01)\n")],
    ids=["other line ends", "empty", "twice"],
)
def test_a_file_in_another_state_is_left_alone(text: str, tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "LOG.md").write_bytes(text.encode())
    found = learnt([*map(logged, VERSIONS)])
    status, _ = run(found, "Log version 9.9.9.", {}, tmp_path)
    assert status == "needs_input"
    assert (tmp_path / "project" / "LOG.md").read_bytes() == text.encode()


UNRELEASED = "# Changes\n\n## Unreleased\n\n{}\n## 1.0.0\n\n- First\n"


def test_a_line_is_added_to_the_list_below_its_heading(tmp_path: Path) -> None:
    works = []
    notes = ["Fix the crash", "Speed up parsing", "Handle long names", "Drop the old flag"]
    for number, note in enumerate(notes):
        rows = "".join(f"- Older {one}\n" for one in range(1 + number % 3))
        work = Work(f'Note "{note}".', {"CHANGES.md": UNRELEASED.format(rows)})
        work.change("CHANGES.md", UNRELEASED.format(f"{rows}- {note}\n"))
        works.append(work)
    found = learnt(works)
    before = {"CHANGES.md": UNRELEASED.format("- One\n- Two\n")}
    after = {"CHANGES.md": UNRELEASED.format("- One\n- Two\n- Add a door\n")}
    assert run(found, 'Note "Add a door".', before, tmp_path / "a") == ("ok", after)
    released = {"CHANGES.md": before["CHANGES.md"].replace("Unreleased", "1.1.0")}
    assert run(found, 'Note "Add a door".', released, tmp_path / "b") == ("needs_input", released)


def test_a_number_that_nothing_explains_is_asked_for_alone() -> None:
    works = []
    for number, name in enumerate(["email", "price", "color", "phone"]):
        work = Work(f"Write a migration that adds the column {name}.", {})
        work.write(f"migrations/{3 + 2 * number:04}_add_{name}.sql", f"ADD COLUMN {name};\n")
        works.append(work)
    found = learnt(works)
    assert found.asked == ["number"]
    path = next(step for step in found.routine["steps"] if step["id"] == "path")
    assert path["value"] == "migrations/{{ number }}_add_{{ column }}.sql"


def migrations(*numbers: int) -> dict[str, str]:
    return {f"migrations/{number:04}_a_{number}.sql": "x\n" for number in numbers}


def migrated() -> Learnt:
    works = []
    for number, name in enumerate(["email", "price", "color", "phone"], 3):
        work = Work(f"Write a migration that adds the column {name}.", migrations(number))
        work.bash("ls migrations", "\n".join(path[11:] for path in work.files))
        work.write(f"migrations/{number + 1:04}_add_{name}.sql", f"ADD COLUMN {name};\n")
        works.append(work)
    return learnt(works)


def test_a_number_may_be_the_next_one(tmp_path: Path) -> None:
    request, files = "Write a migration that adds the column size.", migrations(8, 9)
    made = run(migrated(), request, files, tmp_path)
    assert made == ("ok", {**files, "migrations/0010_add_size.sql": "ADD COLUMN size;\n"})


def test_without_a_number_there_is_no_next_one(tmp_path: Path) -> None:
    request, files = "Write a migration that adds the column size.", {"migrations/a.sql": "x\n"}
    assert run(migrated(), request, files, tmp_path) == ("needs_input", files)


COMPONENTS = {
    "DatePicker": "date-picker",
    "TabList": "tab-list",
    "FileTree": "file-tree",
    "ZoomSlider": "zoom-slider",
}


def test_a_name_in_camel_case_is_written_in_other_cases(tmp_path: Path) -> None:
    works = []
    for name, dashed in COMPONENTS.items():
        work = Work(f"Add {name}.", {})
        work.write(f"{name}.tsx", f"<{name} class='{dashed}' id='{dashed.replace('-', '_')}' />\n")
        works.append(work)
    made = run(learnt(works), "Add HelpMenu.", {}, tmp_path)
    assert made == ("ok", {"HelpMenu.tsx": "<HelpMenu class='help-menu' id='help_menu' />\n"})


def test_a_part_of_a_version_does_not_say_where_another_one_stands(tmp_path: Path) -> None:
    works = []
    for number in range(4):
        log = f"# Log\n\n## 0.{number}.2\n\n- old\n"
        work = Work(f"Log version 0.{number + 1}.0.", {"LOG.md": log})
        work.change("LOG.md", log.replace("## ", f"## 0.{number + 1}.0\n\n- more\n\n## "))
        works.append(work)
    log = "# Log\n\n## 1.0.0\n\n- old\n\n## 0.9.0\n\n- older\n"
    made = run(learnt(works), "Log version 1.1.0.", {"LOG.md": log}, tmp_path)
    assert made == ("ok", {"LOG.md": log.replace("## 1", "## 1.1.0\n\n- more\n\n## 1", 1)})


def test_a_long_text_is_learnt_in_time() -> None:
    works = []
    for version in VERSIONS:
        rows = "".join(f"row {row} of {version}\n" for row in range(2_000))
        work = Work(f"Write {version}.", {})
        work.write("rows.txt", rows)
        works.append(work)
    (step,) = (one for one in learnt(works).routine["steps"] if one.get("tool") == "Create")
    assert step["args"]["content"].count("{{ version }}") == 2_000
