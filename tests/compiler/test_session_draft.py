"""Sessions of a coding agent are learnt from by what they changed, and only if all explain it."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from em.compiler.compile_trace import compile_several
from em.compiler.draft import Draft, GivenUdfs
from em.compiler.export.agent_tools import export_skill
from em.compiler.package_files import write_package
from em.compiler.session_draft import draft_sessions, odd_sessions
from em.errors import RoutineError
from em.runner.engine import run_routine
from em.runner.package import Package
from em.runner.tools import coding
from em.settings import AllowSettings
from em.traces.trace import KeptTrace, Message, Mission, ToolCall, Trace, as_kept

LOG = "# Log\n\n## 1.0 (2025-01-01)\n\n- first\n"
VERSIONS = ["1.2.0", "2.5.1", "3.3.7", "4.0.9"]


def logged(
    version: str,
    written: str,
    at: str | None,
    *,
    looks: Sequence[str] = (),
    file: str = "LOG.md",
    words: str = "Log version {}.",
    whole: bool = False,
    behind: str = "",
) -> Trace:
    """A session that adds a version with a date to a log.

    whole: it writes the whole file. behind: what a read shows behind the last line.
    """
    shown = "\n".join(f"{n:6}→{line}" for n, line in enumerate(LOG.splitlines(), 1)) + behind
    given = {"file_path": f"/srv/{file}"}
    entry = f"## {version} ({written})\n\n- more\n\n"
    calls = [("Bash", {"command": look}, "some text") for look in looks]
    calls += [("Read", given, shown)]
    edit = {**given, "old_string": "## 1.0 (", "new_string": f"{entry}## 1.0 ("}
    content = LOG.replace("## 1.0 (", edit["new_string"])
    change = ("Write", {**given, "content": content}) if whole else ("Edit", edit)
    calls += [(*change, "updated")]
    goal = words.format(version)
    events: list[Any] = [Message(role="user", text=goal)]
    for tool, args, result in calls:
        events.append(ToolCall(tool=tool, args=args, result=result, started_at=at))
    return Trace(app={"cwd": "/srv"}, mission=Mission(goal), events=events, outcome="success")


def learnt(*traces: Trace) -> Draft | None:
    named = {f"t{number}": trace for number, trace in enumerate(traces)}
    said = {name: trace.mission.goal for name, trace in named.items()}
    return draft_sessions(named, said, name="log", declared={})


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    project = tmp_path / "project"
    project.mkdir()
    (project / "LOG.md").write_text(LOG)
    monkeypatch.chdir(project)
    return project


def run(draft: Draft | None, here: Path, request: str) -> tuple[str, str]:
    assert draft is not None
    write_package(draft, here.parent / "package", GivenUdfs())
    allow = AllowSettings(folders=["."])
    result = run_routine(here.parent / "package", {"request": request}, allow=allow)
    return result.status, (here / "LOG.md").read_text()


def test_sessions_that_each_wrote_their_own_day_write_the_day(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = ["2026-03-01", "2026-03-09", "2026-04-02", "2026-05-05"]
    draft = learnt(
        *(logged(v, day, f"{day}T11:00:00Z") for v, day in zip(VERSIONS, days, strict=True))
    )
    monkeypatch.setattr(coding, "now", lambda: datetime.fromisoformat("2027-06-07T11:00:00+00:00"))
    status, text = run(draft, here, "Log version 9.9.9.")
    assert (status, text) == (
        "ok",
        LOG.replace("## 1.0", "## 9.9.9 (2027-06-07)\n\n- more\n\n## 1.0"),
    )


def test_a_day_that_all_sessions_share_may_be_the_day_or_a_constant(here: Path) -> None:
    day = "2026-03-01"
    draft = learnt(*(logged(version, day, f"{day}T11:00:00Z") for version in VERSIONS))
    assert run(draft, here, "Log version 9.9.9.") == ("needs_input", LOG)


def test_a_date_is_not_learnt_from_sessions_of_which_nobody_knows_the_day() -> None:
    assert learnt(*(logged(version, "2026-03-01", None) for version in VERSIONS)) is None


def test_a_date_that_is_not_the_day_is_not_learnt() -> None:
    days = ["2026-03-01", "2026-03-09", "2026-04-02", "2026-05-05"]
    made = [logged(v, day, "2026-07-07T11:00:00Z") for v, day in zip(VERSIONS, days, strict=True)]
    assert learnt(*made) is None


def test_looking_around_is_no_other_way(here: Path) -> None:
    looks = [(), ("ls",), ("git status", "ls -la"), ("cat README.md | head -3",)]
    made = [
        logged(version, "soon", "2026-03-01T11:00:00Z", looks=look)
        for version, look in zip(VERSIONS, looks, strict=True)
    ]
    draft = learnt(*made)
    assert draft is not None
    assert [step.tool for step in draft.routine.steps[:-1]] == ["FileText", "Insert"]
    assert draft.trials.count("right") == len(made)
    assert run(draft, here, "Log version 9.9.9.")[0] == "ok"


def test_a_session_that_wrote_the_whole_file_did_the_same(here: Path) -> None:
    made = [
        logged(version, "soon", "2026-03-01T11:00:00Z", whole=number == 1, behind="\n     6→")
        for number, version in enumerate(VERSIONS)
    ]
    draft = learnt(*made)
    assert draft is not None
    assert draft.trials.summary == "right in 4 of 4, handed over in 0, wrong in 0"
    assert run(draft, here, "Log version 9.9.9.") == (
        "ok",
        LOG.replace("## 1.0", "## 9.9.9 (soon)\n\n- more\n\n## 1.0"),
    )


@pytest.mark.parametrize(
    ("request_words", "text"),
    [
        ("Log version v9.9.9.", LOG),
        ("Log version 9.9.9 and 9.9.8.", LOG),
        ("Log version 9.9.9, if it is out.", LOG),
        ("Log version 9.9.9.", "# Log\n"),
        ("Log version 9.9.9.", "# Log\n\nAll versions.\n"),
    ],
)
def test_what_no_session_shows_changes_nothing(here: Path, request_words: str, text: str) -> None:
    draft = learnt(*(logged(version, "soon", "2026-03-01T11:00:00Z") for version in VERSIONS))
    (here / "LOG.md").write_text(text)
    status, after = run(draft, here, request_words)
    assert (status != "ok", after) == (True, text)


WORDINGS = ["log {}", "{} is out, write it down", "please note that we have {}", "New: {}"]


def worded(*wordings: str) -> list[Trace]:
    """Sessions that were asked for in these words."""
    versions = [f"{number}.2.{number + 3}" for number in range(len(wordings))]
    return [
        logged(version, "soon", "2026-03-01T11:00:00Z", words=words)
        for version, words in zip(versions, wordings, strict=True)
    ]


def named(draft: Draft | None, here: Path, **given: str) -> tuple[str, str]:
    assert draft is not None
    write_package(draft, here.parent / "package", GivenUdfs())
    result = run_routine(here.parent / "package", given, allow=AllowSettings(folders=["."]))
    return result.status, (here / "LOG.md").read_text()


def test_what_each_request_says_in_its_own_words_is_an_input_by_name(here: Path) -> None:
    draft = learnt(*worded(*WORDINGS))
    assert draft is not None
    assert draft.routine.request is None
    assert "`em run log version=…`" in draft.proof[-1]
    assert draft.trials.summary == "right in 4 of 4, handed over in 0, wrong in 0"
    assert named(draft, here, version="9.9.9") == (
        "ok",
        LOG.replace("## 1.0", "## 9.9.9 (soon)\n\n- more\n\n## 1.0"),
    )


@pytest.mark.parametrize("version", ["v9.9.9", "", "9.9.9\n## 8", "the next one"])
def test_an_input_by_name_must_look_like_what_was_written(here: Path, version: str) -> None:
    status, text = named(learnt(*worded(*WORDINGS)), here, version=version)
    assert (status != "ok", text) == (True, LOG)


def test_words_that_enough_requests_share_are_read_beside_names(here: Path) -> None:
    draft = learnt(*worded(*WORDINGS, "log {}", "log {}"))
    assert draft is not None
    assert draft.routine.request is not None
    assert draft.routine.request.template == "log {{ version }}"
    assert run(draft, here, "log 7.7.7")[0] == "ok"
    (here / "LOG.md").write_text(LOG)
    assert run(draft, here, "log 7.7.7 tomorrow") == ("needs_input", LOG)
    assert named(draft, here, version="9.9.9")[0] == "ok"


def test_a_value_that_does_not_look_like_the_recorded_ones_is_named(here: Path) -> None:
    draft = learnt(*worded(*["log {} now"] * 4))
    assert draft is not None
    write_package(draft, here.parent / "package", GivenUdfs())
    asked = []
    for words in ("log soon now", "write 9.9.9 down"):
        made = run_routine(
            here.parent / "package", {"request": words}, allow=AllowSettings(folders=["."])
        )
        assert made.pending_prompt is not None
        asked.append(made.pending_prompt.message)
    assert '"soon" does not look like the recorded ones; it was "' in asked[0]
    assert "the request does not say it in the recorded words" in asked[1]


def test_words_that_a_request_is_not_read_in_are_named() -> None:
    draft = learnt(*worded("log {}", "{} is out, write it down", "log {}", "log {}"))
    assert draft is not None
    assert draft.proof[-2:] == (
        "a request in these words is read too: log {version}",
        "not so the requests of t1",
    )


COURTEOUS = ["Log version {} now", "Please log version {} now", "Hi, log version {} now, thanks!"]


def test_courtesies_around_a_request_are_no_other_words(here: Path) -> None:
    draft = learnt(*worded(*COURTEOUS, "log version {} now please"))
    assert draft is not None
    assert draft.routine.request is not None
    assert draft.routine.request.template == "Log version {{ version }} now"
    assert draft.trials.summary == "right in 4 of 4, handed over in 0, wrong in 0"
    for words in ("log version 9.9.9 now", "Please log version 9.9.9 now. Thank you!"):
        (here / "LOG.md").write_text(LOG)
        status, text = run(draft, here, words)
        assert (status, "## 9.9.9 (soon)" in text) == ("ok", True), words
    (here / "LOG.md").write_text(LOG)
    assert run(draft, here, "Please don't log version 9.9.9 now")[1] == LOG


def test_an_input_is_what_every_request_says() -> None:
    others = [
        logged(version, "soon", "2026-03-01T11:00:00Z", words="log the next one")
        for version in VERSIONS[1:]
    ]
    assert learnt(*worded("log {}"), *others) is None


def _with_command(trace: Trace, command: str) -> Trace:
    """Return a session that makes its change with a command, without having read the file."""
    run = ToolCall(tool="Bash", args={"command": command}, result="")
    events = [one for one in trace.events if not isinstance(one, ToolCall)]
    return msgspec.structs.replace(trace, events=[*events, run])


def _kept(*traces: Trace) -> list[KeptTrace]:
    return [as_kept(trace, f"t{number}") for number, trace in enumerate(traces)]


FIVE = [*VERSIONS, "5.5.5"]


def test_a_session_whose_change_is_not_known_is_left_out_and_named() -> None:
    made = [logged(version, "soon", "2026-03-01T11:00:00Z") for version in FIVE]
    made[2] = _with_command(made[2], "sed -i 's/^## 1.0/## 3.3.7 (soon)/' LOG.md")
    done = compile_several(_kept(*made))
    assert done.draft.trials.summary == "right in 4 of 4, handed over in 0, wrong in 0"
    assert done.same_way == ["t0", "t1", "t3", "t4"]
    assert done.not_compiled == {
        "t2": "it is not known what its `sed` changed: it had not read each file as a whole"
    }


@pytest.mark.parametrize(
    "command", ["rm LOG.md", "git push", "sed -i 's/^## 1.0/## 2.0/' OTHER.md", "mv LOG.md NEWS.md"]
)
def test_a_session_that_did_something_else_is_not_left_out(command: str) -> None:
    made = [logged(version, "soon", "2026-03-01T11:00:00Z") for version in FIVE]
    made[2] = _with_command(made[2], command)
    named = {f"t{number}": trace for number, trace in enumerate(made)}
    assert odd_sessions(named, {}) == {}
    with pytest.raises(RoutineError, match="different effects") as refused:
        compile_several(_kept(*made))
    assert refused.value.fix == "compile the others without t2"


def test_two_sessions_are_too_few() -> None:
    assert learnt(*(logged(version, "soon", None) for version in VERSIONS[:2])) is None


def test_a_file_name_that_nothing_explains_is_not_learnt() -> None:
    made = [
        logged(version, "soon", "2026-03-01T11:00:00Z", file=f"{name}.md")
        for version, name in zip(VERSIONS, ["A", "LOG", "NEWS", "WHY"], strict=True)
    ]
    assert learnt(*made) is None


def test_its_skill_runs_it_with_em_and_says_what_to_allow(here: Path) -> None:
    draft = learnt(*(logged(version, "soon", "2026-03-01T11:00:00Z") for version in VERSIONS))
    assert draft is not None
    write_package(draft, here.parent / "package", GivenUdfs())
    files = export_skill(Package(here.parent / "package"))
    assert set(files) == {"routine/routine.yaml", "SKILL.md"}
    assert "em run routine --input input.json --allow-folder . --json" in files["SKILL.md"]
    assert not any(version in text for version in VERSIONS for text in files.values())


def test_three_sessions_are_not_tried_and_it_says_so() -> None:
    days = ["2026-03-01", "2026-03-09", "2026-04-02", "2026-05-05"]
    sessions = [logged(v, day, f"{day}T11:00:00Z") for v, day in zip(VERSIONS, days, strict=True)]
    draft = learnt(*sessions[:3])
    assert draft is not None
    summary = "not tried: leaving one out leaves too few to learn from"
    assert draft.trials.summary.startswith(summary)
    assert not draft.trials.warning
    more = learnt(*sessions)
    assert more is not None
    assert more.trials.summary == "right in 4 of 4, handed over in 0, wrong in 0"
