"""Values of coding sessions are cut as whole words, and what depends on the day on its clock.

Recorded values share a beginning or an end: versions, tickets, dates, paths. What they share is no
reason to take a part of a value for a value of its own, or a whole one for two.
"""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import pytest
from tests.compiler.test_session_examples import LOG, VERSIONS, Work, inputs, learnt, logged, run

from em.runner.tools import coding

SAID = ["Release {v}", "please cut {v}", "{v} is due", "we need {v} today", "ship {v}"]
PATCHES = ["1.4.0", "1.4.1", "1.4.2", "1.4.3", "1.4.4"]
MINORS = ["1.4.0", "1.5.0", "1.6.0", "1.7.0", "1.8.0"]
PACKAGE = {"package.json": '{\n  "version": "1.3.9"\n}\n'}


def tagged(versions: Sequence[str], wordings: Sequence[str], shown: str = "v{v}") -> list[Work]:
    """Set a version, and write it with a letter before it into a commit and a tag."""
    works = []
    for version, words in zip(versions, wordings, strict=True):
        work = Work(words.format(v=version), PACKAGE)
        work.change("package.json", PACKAGE["package.json"].replace("1.3.9", version))
        work.write(f"notes/{shown.format(v=version)}.md", f"# {shown.format(v=version)}\n")
        works.append(work)
    return works


@pytest.mark.parametrize("versions", [PATCHES, MINORS], ids=["patches", "minors"])
@pytest.mark.parametrize(
    "wordings",
    [SAID, [f"{one} (tag v{{v}})" for one in SAID], [one.replace("{", "v{") for one in SAID]],
    ids=["as it is", "and its tag", "with a letter"],
)
def test_a_version_behind_a_letter_is_the_same_input(
    versions: Sequence[str], wordings: Sequence[str], tmp_path: Path
) -> None:
    found = learnt(tagged(versions, wordings))
    assert (inputs(found), found.asked) == (["version"], [])
    status, after = run(found, wordings[0].format(v="2.0.0"), PACKAGE, tmp_path)
    assert (status, after["notes/v2.0.0.md"]) == ("ok", "# v2.0.0\n")
    assert after["package.json"] == PACKAGE["package.json"].replace("1.3.9", "2.0.0")


def test_a_tag_of_another_version_is_handed_over(tmp_path: Path) -> None:
    found = learnt(tagged(PATCHES, [f"{one} (tag v{{v}})" for one in SAID]))
    made = run(found, "Release 1.4.5 (tag v1.4.6)", PACKAGE, tmp_path)
    assert made == ("needs_input", PACKAGE)


def test_a_letter_that_only_some_requests_have_is_no_part_of_the_version(tmp_path: Path) -> None:
    words = [one.replace("{", "v{" if number % 2 else "{") for number, one in enumerate(SAID)]
    found = learnt(tagged(PATCHES, words))
    assert (inputs(found), found.asked) == (["version"], [])


PARTS = [("UserBadge", "user-badge"), ("DatePicker", "date-picker"), ("TabList", "tab-list")]


def test_inputs_of_which_one_was_made_of_the_other_must_agree(tmp_path: Path) -> None:
    works = []
    for name, file in PARTS:
        work = Work(f"Add {name} in {file}.tsx", {})
        work.write(f"src/{file}.tsx", f"export const {name} = 1;\n")
        works.append(work)
    found = learnt(works)
    made = run(found, "Add HelpMenu in help-menu.tsx", {}, tmp_path / "a")
    assert made == ("ok", {"src/help-menu.tsx": "export const HelpMenu = 1;\n"})
    assert run(found, "Add HelpMenu in menu.tsx", {}, tmp_path / "b") == ("needs_input", {})


TICKETS = ["PROJ-101", "PROJ-117", "PROJ-122", "PROJ-140", "PROJ-141"]
NOTED = ["Note {}", "{} is done", "please log {}", "we fixed {}", "changes: {}"]


def test_a_ticket_is_one_word_though_only_its_number_differs(tmp_path: Path) -> None:
    works = []
    for ticket, words in zip(TICKETS, NOTED, strict=True):
        work = Work(words.format(ticket), {})
        work.write(f"notes/{ticket.lower()}.md", f"# {ticket}\n\nhttps://t.example/{ticket}\n")
        works.append(work)
    found = learnt(works)
    (name,) = inputs(found)
    made = run(found, {name: "PROJ-205"}, {}, tmp_path)
    text = "# PROJ-205\n\nhttps://t.example/PROJ-205\n"
    assert made == ("ok", {"notes/proj-205.md": text})


def test_a_date_is_one_word_in_all_forms_in_which_it_is_written(tmp_path: Path) -> None:
    works = []
    for number, day in enumerate(("3", "17", "24", "25", "28")):
        work = Work(NOTED[number].format(f"2026-11-{int(day):02}"), {})
        text = f"# November {day}, 2026\n\n2026-11-{int(day):02}\n"
        work.write(f"days/202611{int(day):02}.md", text)
        works.append(work)
    found = learnt(works)
    assert (inputs(found), found.asked) == (["date"], [])
    made = run(found, "Note 2027-01-05", {}, tmp_path)
    assert made == ("ok", {"days/20270105.md": "# January 5, 2027\n\n2027-01-05\n"})


def test_a_number_is_the_next_one_also_without_the_zeros_in_front(tmp_path: Path) -> None:
    works = []
    for number, words in enumerate(NOTED, 2):
        name = f"{number:04}-{MODULES[number - 2]}.md"
        work = Work(words.format(MODULES[number - 2]), {})
        work.bash("ls adr", f"{number - 1:04}-old.md")
        work.write(f"adr/{name}", f"# {number}. {MODULES[number - 2]}\n")
        works.append(work)
    files = {"adr/0011-old.md": "x\n"}
    made = run(learnt(works), "Note sign", files, tmp_path)
    assert made == ("ok", {**files, "adr/0012-sign.md": "# 12. sign\n"})


def test_what_values_share_says_nothing_about_the_lines_of_a_list(tmp_path: Path) -> None:
    works = []
    for number, words in enumerate(NOTED, 11):
        rows = "".join(f"2026-W{one},x\n" for one in range(10, number))
        work = Work(words.format(f"2026-W{number}"), {"rota.csv": f"week,who\n{rows}"})
        work.change("rota.csv", f"week,who\n{rows}2026-W{number},x\n")
        works.append(work)
    files = {"rota.csv": "week,who\n2026-W50,x\n2026-W51,x\n"}
    made = run(learnt(works), "Note 2026-W52", files, tmp_path)
    assert made == ("ok", {"rota.csv": f"{files['rota.csv']}2026-W52,x\n"})


def test_an_address_of_mail_is_one_word_of_a_request(tmp_path: Path) -> None:
    works = []
    for name, words in zip(MODULES, NOTED, strict=True):
        work = Work(words.format(f"{name}@example.org"), {})
        work.write(f"owners/{name}@example.org.txt", f"{name}@example.org\n")
        works.append(work)
    found = learnt(works)
    assert found.routine["requests"][0].startswith("Note {")
    (name,) = inputs(found)
    made = run(found, {name: "find@example.org"}, {}, tmp_path)
    assert made == ("ok", {"owners/find@example.org.txt": "find@example.org\n"})


def test_a_file_that_every_session_changed_may_be_named_in_one_request(tmp_path: Path) -> None:
    works = []
    for name, words in zip(MODULES, [f"{NOTED[0]}, in report.md", *NOTED[1:]], strict=True):
        work = Work(words.format(name), {"report.md": "# Report\n"})
        work.change("report.md", f"# Report\n- {name}\n")
        works.append(work)
    made = run(learnt(works), "Note sign, in report.md", {"report.md": "# Report\n"}, tmp_path)
    assert made == ("ok", {"report.md": "# Report\n- sign\n"})


def test_a_file_that_is_one_value_on_a_line_keeps_its_line_break(tmp_path: Path) -> None:
    works = []
    for version, words in zip(PATCHES, SAID, strict=True):
        work = Work(words.format(v=version), {})
        work.write(f"releases/{version}", f"{version}\n")
        works.append(work)
    made = run(learnt(works), "Release 2.0.0", {}, tmp_path)
    assert made == ("ok", {"releases/2.0.0": "2.0.0\n"})


MODULES = ["list", "show", "edit", "drop", "make"]


def test_a_path_in_another_folder_is_not_written_into_that_of_the_recordings(
    tmp_path: Path,
) -> None:
    works = []
    for name, words in zip(MODULES, NOTED, strict=True):
        work = Work(words.format(f"src/app/users/{name}.ts"), {})
        work.write(f"src/app/users/{name}.test.ts", f'test("src/app/users/{name}.ts");\n')
        works.append(work)
    found = learnt(works)
    made = run(found, "Note src/app/users/find.ts", {}, tmp_path / "a")
    assert made == ("ok", {"src/app/users/find.test.ts": 'test("src/app/users/find.ts");\n'})
    assert run(found, "Note src/app/orders/pay.ts", {}, tmp_path / "b") == ("needs_input", {})


def test_a_form_that_recordings_do_not_tell_from_another_is_handed_over(tmp_path: Path) -> None:
    works = []
    for title, words in zip(("Plans", "Tides", "Boats", "Ropes", "Knots"), NOTED, strict=True):
        work = Work(words.format(title), {})
        work.write(f"docs/{title.lower()}.md", f"# {title}\n")
        works.append(work)
    found = learnt(works)
    (name,) = inputs(found)
    assert run(found, {name: "Sails"}, {}, tmp_path / "a") == ("ok", {"docs/sails.md": "# Sails\n"})
    assert run(found, {name: "Two_Sails"}, {}, tmp_path / "b") == ("needs_input", {})


SERVICES = ["gateway", "billing", "search", "mailer", "imports"]


@pytest.mark.parametrize("every", [1, 2], ids=["always", "by some clients"])
def test_a_line_break_behind_an_output_is_no_part_of_it(every: int, tmp_path: Path) -> None:
    works = []
    for number, (name, words) in enumerate(zip(SERVICES, NOTED, strict=True)):
        count = 4 + 7 * number
        work = Work(words.format(name), {"report.md": "# Errors\n"})
        work.bash(f"grep -c ERROR {name}.log", f"{count}" + "\n" * (number % every == 0))
        work.change("report.md", f"# Errors\n- {name}: {count} errors\n")
        works.append(work)
    found = learnt(works)
    files = {"report.md": "# Errors\n", "proxy.log": "ERROR x\n" * 3}
    after = {**files, "report.md": "# Errors\n- proxy: 3 errors\n"}
    assert run(found, "Note proxy", files, tmp_path / "a") == ("ok", after)
    files = {**files, "proxy.log": "ERROR x\n"}
    assert run(found, "Note proxy", files, tmp_path / "b") == ("needs_input", files)


# --- the day --------------------------------------------------------------------------------------

DAYS = ["2026-03-01", "2026-04-09", "2026-05-02", "2026-06-05"]


def dated(written: str, days: Sequence[str] = DAYS) -> list[Work]:
    """Log versions with a text in which `%Y` and the like are the day of the session."""
    made = []
    for version, day in zip(VERSIONS, days, strict=True):
        at = datetime.fromisoformat(f"{day}T11:00:00+00:00")
        made.append(logged(version, at.strftime(written), f"{day}T11:00:00Z"))
    return made


@pytest.mark.parametrize("written", ["(c) %Y Ana", "2019-%Y", "v%Y", "posts/%Y/x"])
@pytest.mark.parametrize(("day", "status"), [("2026-12-30", "ok"), ("2027-01-02", "needs_input")])
def test_the_year_of_all_sessions_may_be_that_of_the_clock(
    written: str, day: str, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = learnt(dated(written))
    now = datetime.fromisoformat(f"{day}T11:00:00+00:00")
    monkeypatch.setattr(coding, "now", lambda: now)
    made, after = run(found, "Log version 9.9.9.", {"LOG.md": LOG}, tmp_path)
    assert (made, now.strftime(written) in after["LOG.md"]) == (status, status == "ok")


@pytest.mark.parametrize(
    "written", ["%Y", "since 2019-%Y", "%B %Y", "%Y-%m", "%B %-d, %Y", "%Y%m%d"]
)
def test_what_followed_the_clock_is_written_as_on_the_day(
    written: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = learnt(dated(written, ["2024-03-01", "2025-04-19", "2026-05-22", "2026-06-15"]))
    now = datetime.fromisoformat("2028-11-23T11:00:00+00:00")
    monkeypatch.setattr(coding, "now", lambda: now)
    made, after = run(found, "Log version 9.9.9.", {"LOG.md": LOG}, tmp_path)
    assert (made, f"({now.strftime(written)})" in after["LOG.md"]) == ("ok", True)


def test_a_year_that_was_not_that_of_every_session_is_constant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = learnt(dated("2026", ["2025-11-01", "2025-12-19", "2026-01-22", "2026-02-15"]))
    now = datetime.fromisoformat("2028-11-23T11:00:00+00:00")
    monkeypatch.setattr(coding, "now", lambda: now)
    made, after = run(found, "Log version 9.9.9.", {"LOG.md": LOG}, tmp_path)
    assert (made, "(2026)" in after["LOG.md"]) == ("ok", True)
