"""What an agent wrote is let in only if it does on all recordings what was done there.

Each wrong submission is one that an agent could well send. All are refused, and the difference is
shown; the right one waits for a person.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.compiler.test_session_examples import Work

from em import Memory
from em.compiler.group import Group
from em.compiler.proposals import group_of
from em.compiler.submission import Submission, judged
from em.errors import NotFound
from em.runner.package import find_routine, routine_of
from em.traces.trace import Mission, ToolCall, Trace


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Memory]:
    with Memory(tmp_path_factory.mktemp("recorded") / "em.db") as memory:
        yield memory


def changed(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1
    return text.replace(old, new)


# --- tools ----------------------------------------------------------------------------------------

PEOPLE = ["ana", "ben", "cleo", "dora", "emil"]
REASONS = ["too late", "wrong size", "found it cheaper", "ordered twice", "no longer needed"]


def cancelled(number: int) -> Trace:
    """An agent looked a customer and an order up, cancelled it, and wrote to the customer."""
    name, reason = PEOPLE[number], REASONS[number]
    email, order_id, user_id = f"{name}@mail.example", f"#W{7101 + number}", f"u-{name}-{number}"
    order = {
        "id": order_id,
        "status": "pending",
        "user_id": user_id,
        "others": [f"#W{8000 + number}"],
    }
    text = f"Hello {name.title()},\n{order_id} is cancelled.\nThe shop"
    return Trace(
        mission=Mission("cancel", {"email": email, "order_id": order_id, "reason": reason}),
        events=[
            ToolCall(
                tool="find_user", args={"email": email}, effect="read",
                result={"user_id": user_id, "name": name.title(), "email": email},
            ),
            ToolCall(tool="get_order", args={"order_id": order_id}, effect="read", result=order),
            ToolCall(
                tool="cancel_order", args={"order_id": order_id, "reason": reason}, effect="write",
                result={"order_id": order_id, "status": "cancelled"},
            ),
            ToolCall(
                tool="send_mail", args={"to": email, "text": text}, effect="write", result="sent",
            ),
        ],
        final_output="cancelled",
        outcome="success",
    )  # fmt: skip


RIGHT = """\
name: cancel_and_tell
tools: [{name: find_user}, {name: get_order}, {name: cancel_order}, {name: send_mail}]
steps:
  - {id: user, type: tool.call, tool: find_user, args: {email: "{{ email }}"}, save_as: user}
  - {id: order, type: tool.call, tool: get_order, save_as: order,
     args: {order_id: "{{ order_id }}"}}
  - {id: same_mail, type: assert, check: user.email == email}
  - {id: same_order, type: assert, check: order.id == order_id}
  - {id: own, type: assert, check: order.user_id == user.user_id, message: it is of somebody else}
  - {id: cancel, type: tool.call, tool: cancel_order, save_as: done,
     args: {order_id: "{{ order_id }}", reason: "{{ reason }}"}}
  - {id: tell, type: tool.call, tool: send_mail,
     args: {to: "{{ email }}",
            text: "Hello {{ user.name }},\\n{{ order_id }} is cancelled.\\nThe shop"}}
  - {id: end, type: return, value: cancelled}
"""
TELL = RIGHT[RIGHT.index("  - {id: tell") : RIGHT.index("  - {id: end")]
WRONG = {
    "hard-coded value": changed(RIGHT, 'reason: "{{ reason }}"', "reason: too late"),
    "forgets a write": changed(RIGHT, TELL, ""),
    "too greedy": changed(
        RIGHT,
        '     args: {order_id: "{{ order_id }}", reason',
        '     for_each: "{{ [order_id] + order.others }}", as: one,\n'
        '     args: {order_id: "{{ one }}", reason',
    ),
    "drops a check": changed(
        RIGHT,
        "  - {id: own, type: assert, check: order.user_id == user.user_id,"
        " message: it is of somebody else}\n",
        "",
    ),
    "writes twice": changed(RIGHT, TELL, TELL + TELL.replace("id: tell", "id: again")),
    "swaps two inputs": RIGHT.replace('order_id: "{{ order_id }}", reason: "{{ reason }}"',
                                      'order_id: "{{ reason }}", reason: "{{ order_id }}"'),
    "goes on after a failure": changed(
        RIGHT, "tool: cancel_order,", "tool: cancel_order, on_error: continue,"
    ),
    "loses a line at the end": changed(RIGHT, "\\nThe shop", ""),
    "only known values": changed(
        RIGHT, 'to: "{{ email }}"',
        "to: \"{{ email if '@mail' in email else 'all@mail.example' }}\"",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def orders(memory: Memory) -> list[str]:
    return [memory.add_trace(cancelled(number)) for number in range(5)]


@pytest.fixture(scope="module")
def of_tools(memory: Memory, orders: list[str]) -> Group:
    return group_of(memory.store, orders)


def test_recordings_are_shown_without_what_was_done_in_those_held_back(
    memory: Memory, orders: list[str]
) -> None:
    shown = memory.propose(orders)
    assert [one["recording"] for one in shown["held_back"]] == [orders[1], orders[4]]
    assert all("calls" not in one for one in shown["held_back"])
    assert [one["inputs"]["order_id"] for one in shown["recordings"]] == [
        "#W7101",
        "#W7103",
        "#W7104",
    ]
    assert "u-ben-1" not in str(shown)


def test_the_groups_that_recur_are_named_by_keys(memory: Memory, orders: list[str]) -> None:
    (group,) = memory.propose()["groups"]
    assert len(memory.propose(group["group"])["recordings"]) == 3
    with pytest.raises(NotFound):
        memory.propose("nothing")


def test_a_right_routine_waits_for_a_person(memory: Memory, orders: list[str]) -> None:
    told = memory.propose(orders, {"routine.yaml": RIGHT}, name="by_agent")
    assert (told["accepted"], told["right"], told["wrong"]) == (True, 5, 0), told
    assert told["routine"] == "by_agent@1"
    assert memory.standing("by_agent@1").state == "proposed"
    assert memory.accept("by_agent@1").changed
    assert memory.standing("by_agent@1").by_itself
    made = routine_of(find_routine(memory.store, "by_agent@1"))
    assert made.checks == "hand_over"
    assert {one.name: one.effect for one in made.tools}["cancel_order"] == "write"


@pytest.mark.parametrize("routine", WRONG.values(), ids=WRONG.keys())
def test_a_wrong_routine_is_refused_with_the_difference(of_tools: Group, routine: str) -> None:
    found = judged(of_tools, Submission(files={"routine.yaml": routine}))
    assert (found.is_accepted, found.draft) == (False, None)
    assert found.differences


def test_what_is_refused_is_not_stored(memory: Memory, orders: list[str]) -> None:
    told = memory.propose(orders, {"routine.yaml": WRONG["forgets a write"]}, name="refused")
    assert (told["accepted"], told["wrong"]) == (False, 5)
    assert "send_mail" in told["differences"][0]
    with pytest.raises(NotFound):
        memory.standing("refused")


def test_values_that_nobody_said_are_no_inputs(of_tools: Group, orders: list[str]) -> None:
    given = {orders[0]: {"email": "eve@mail.example", "order_id": "#W7101", "reason": "too late"}}
    found = judged(of_tools, Submission(files={"routine.yaml": RIGHT}, inputs=given))
    assert not found.is_accepted
    assert "eve@mail.example" in found.differences[0]


def test_code_runs_in_the_sandbox(of_tools: Group, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    code = f"def said(name):\n    open({str(mark)!r}, 'w').write('x')\n    return name\n"
    routine = changed(RIGHT, "{{ user.name }}", "{{ said(user.name) }}")
    found = judged(of_tools, Submission(files={"routine.yaml": routine, "udf.py": code}))
    assert (found.is_accepted, mark.exists()) == (False, False)


# --- files ----------------------------------------------------------------------------------------

TEST = "python -m pytest -q"


def released(number: int) -> Trace:
    """A session set a version, added a line to the changelog, ran the tests and committed."""
    old, new = f"1.{number + 2}.0", f"1.{number + 3}.0"
    note = ["Adds search", "Mends the login", "Sorts by date", "Speeds up start", "Shows totals"][
        number
    ]
    work = Work(
        f"Release {new}: {note}",
        {
            "pyproject.toml": f'[project]\nversion = "{old}"\n\n[tool.pins]\nlib = "{old}"\n',
            "CHANGELOG.md": f"# Changes\n\n- {old}: first\n\nThe end\n",
        },
    )
    work.read("pyproject.toml")
    work.read("CHANGELOG.md")
    work.edit("pyproject.toml", f'version = "{old}"', f'version = "{new}"')
    work.edit("CHANGELOG.md", "# Changes\n\n", f"# Changes\n\n- {new}: {note}\n")
    work.bash(TEST, "3 passed")
    work.bash(f'git commit -qam "{new}"')
    trace = work.trace
    trace.mission.input_summary.update({"version": new, "note": note})
    return trace


@pytest.fixture(scope="module")
def releases(memory: Memory) -> list[str]:
    return [memory.add_trace(released(number)) for number in range(4)]


@pytest.fixture(scope="module")
def of_files(memory: Memory, releases: list[str]) -> Group:
    return group_of(memory.store, releases)


def test_sessions_are_shown_by_what_they_changed(of_files: Group) -> None:
    shown = of_files.shown()
    first = shown["recordings"][0]
    assert '+version = "1.3.0"' in first["changes"]
    assert first["files"]["CHANGELOG.md"].endswith("The end\n")
    assert len(shown["run_after_changes"]) == 1
    assert len(shown["held_back"]) == 1


def test_a_script_is_no_routine(of_files: Group) -> None:
    found = judged(of_files, Submission(files={"SKILL.md": "Run it.", "release.py": "1"}))
    assert not found.is_accepted


FILES = """\
name: release
input_schema:
  type: object
  required: [version, note]
  properties: {version: {type: string}, note: {type: string}}
tools: [{name: FileText}, {name: Edit}, {name: TEST}, {name: COMMIT}]
steps:
  - {id: project, type: tool.call, tool: FileText, save_as: project,
     args: {file_path: pyproject.toml}}
  - {id: old, type: udf.call, function: version_line, args: {text: "{{ project }}"}, save_as: old}
  - {id: set, type: tool.call, tool: Edit,
     args: {file_path: pyproject.toml, old_string: "{{ old }}",
            new_string: 'version = "{{ version }}"'}}
  - {id: log, type: tool.call, tool: Edit,
     args: {file_path: CHANGELOG.md, old_string: "# Changes\\n\\n",
            new_string: "# Changes\\n\\n- {{ version }}: {{ note }}\\n"}}
  - {id: test, type: tool.call, tool: TEST, args: OF_TEST}
  - {id: commit, type: tool.call, tool: COMMIT, args: OF_COMMIT}
  - {id: end, type: return, value: done}
"""
CODE = """\
def version_line(text):
    (found,) = [line for line in text.splitlines() if line.startswith("version = ")]
    return found
"""
LOG_STEP = FILES[FILES.index("  - {id: log") : FILES.index("  - {id: test")]
TEST_STEP = FILES[FILES.index("  - {id: test") : FILES.index("  - {id: commit")]


def files_of(shown: dict[str, Any], routine: str) -> dict[str, str]:
    """Return the files of a routine, with the names of the recorded commands."""
    calls = {one["tool"].partition("_")[0]: one for one in shown["recordings"][0]["calls"]}
    test, commit = calls["python"], calls["git"]
    texts = {
        "OF_TEST": test["args"],
        "OF_COMMIT": {
            name: one.replace("1.3.0", "{{ version }}") for name, one in commit["args"].items()
        },
        "TEST": test["tool"],
        "COMMIT": commit["tool"],
    }
    for word, text in texts.items():
        routine = routine.replace(word, str(text))
    return {"routine.yaml": routine, "udf.py": CODE}


def test_a_routine_may_change_the_files_by_other_steps(memory: Memory, releases: list[str]) -> None:
    files = files_of(memory.propose(releases), FILES)
    told = memory.propose(releases, files, name="release")
    assert (told["accepted"], told["right"]) == (True, 4), told


@pytest.mark.parametrize(
    "routine",
    [
        changed(FILES, LOG_STEP, ""),
        changed(FILES, TEST_STEP, ""),
        changed(FILES, LOG_STEP + TEST_STEP, TEST_STEP + LOG_STEP),
        changed(FILES, LOG_STEP, LOG_STEP + LOG_STEP.replace("id: log", "id: more")),
        changed(FILES, "- {{ version }}: {{ note }}", "- {{ note }}: {{ version }}"),
        changed(FILES, ": {{ note }}\\n", ""),
        changed(FILES, "'version = \"{{ version }}\"'", "'version = \"1.3.0\"'"),
        changed(FILES, "\"{{ old }}\",", "\"{{ old }}\", replace_all: true,")
        .replace("{{ old }}", "{{ old[11:-1] }}")
        .replace("'version = \"{{ version }}\"'", "'{{ version }}'"),
    ],
    ids=[
        "forgets a file", "drops the test", "tests before the last change", "writes twice",
        "swaps two inputs", "loses a line", "hard-coded value", "too greedy",
    ],
)  # fmt: skip
def test_a_wrong_routine_for_files_is_refused(of_files: Group, routine: str) -> None:
    found = judged(of_files, Submission(files=files_of(of_files.shown(), routine)))
    assert not found.is_accepted
    assert found.differences


# --- days, and checks in several forms ------------------------------------------------------------

DATED = """\
name: log
input_schema: {type: object, required: [version], properties: {version: {type: string}}}
tools: [{name: Today}, {name: FileThere}, {name: Create}, {name: TEST}, {name: COMMIT}]
steps:
  - {id: day, type: tool.call, tool: Today, args: {form: "%Y-%m-%d", zone: utc}, save_as: day}
  - {id: there, type: tool.call, tool: FileThere, args: {file_path: "{{ version }}.md"},
     expect: {const: false}}
  - {id: write, type: tool.call, tool: Create,
     args: {file_path: "{{ version }}.md", content: "# {{ version }}, {{ day }}.\\n"}}
  - {id: test, type: tool.call, tool: TEST, args: OF_TEST}
  - {id: commit, type: tool.call, tool: COMMIT, args: OF_COMMIT}
  - {id: end, type: return, value: done}
"""


OF_DATED = DATED[DATED.index("  - {id: test") : DATED.index("  - {id: commit")]


@pytest.mark.parametrize(
    ("routine", "is_accepted"),
    [
        (DATED, True),
        (changed(DATED, OF_DATED, ""), False),
        (changed(DATED, "{{ day }}", "2026-03-02"), False),
    ],
    ids=["right", "drops the test", "one day"],
)
def test_a_routine_may_ask_the_day_and_must_run_what_was_run_in_any_form(
    memory: Memory, routine: str, is_accepted: bool
) -> None:
    ids = []
    for number in range(4):
        version, day = f"{number + 2}.0.7", f"2026-03-0{number + 2}"
        work = Work(f"Log {version}", {}, f"{day}T11:00:00Z")
        work.write(f"{version}.md", f"# {version}, {day}.\n")
        work.bash("make test" if number % 2 else "make test 2>&1 | tail -2 || echo FAILED", "fine")
        work.bash("git status --short || true", "?? a.md")
        work.bash(f'git commit -qam "{version}"')
        ids.append(memory.add_trace(work.trace))
    shown = memory.propose(ids)
    assert shown["recordings"][0]["day"] == "2026-03-02"
    calls = {one["tool"].partition("_")[0]: one for one in shown["recordings"][0]["calls"]}
    commit = next(one for one in shown["recordings"][0]["calls"] if "message" in one["args"])
    for word, text in {
        "OF_TEST": calls["make"]["args"],
        "OF_COMMIT": {**commit["args"], "message": "{{ version }}"},
        "TEST": calls["make"]["tool"],
        "COMMIT": commit["tool"],
    }.items():
        routine = routine.replace(word, str(text))
    assert memory.propose(ids, {"routine.yaml": routine}, name="log")["accepted"] is is_accepted
