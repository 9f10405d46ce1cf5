"""What recurs in sessions is proposed with its proof, told once, and kept only by a person."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.cli.em_command import em
from tests.clients.test_hooks import event, lines_of_a_session

from em import Memory
from em.clients import hook_service as proposer
from em.clients.advice import HEADING, MOST_TOKENS, Advice
from em.clients.hook_service import HookService, Proposer
from em.compiler.proposals import find_proposal, note_told, open_proposals, propose
from em.compiler.suggestions import Suggestion, suggest
from em.errors import NotFound
from em.heuristics.brief import cost
from em.runner.package import keep_routine
from em.runner.trial import TrialCounts

FILES = ("orders", "sales", "returns", "bills")


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path / "em.db") as memory:
        yield memory


def session(goal: str, command: str, **more: Any) -> dict[str, Any]:
    call = {"type": "tool_call", "tool": "Bash", "args": {"command": command}, "result": ""}
    said = {"type": "message", "role": "user", "text": goal}
    app = {"name": "claude-code"}
    trace = {"version": "1", "mission": {"goal": goal}, "events": [said, call], "app": app}
    return {**trace, "outcome": "unknown", **more}


def count_lines(memory: Memory, *names: str) -> list[str]:
    """Sessions of one task, each with another file."""
    return [
        memory.add_trace(
            session(
                f"count the pending lines of {name}.csv into {name}.txt",
                f"grep -c pending {name}.csv > {name}.txt",
            )
        )
        for name in names
    ]


def found(memory: Memory, *about: str) -> list[Suggestion]:
    return suggest(memory.store, allow_unlabelled=True, about=about)


def test_what_recurs_is_proposed_with_its_proof_once(memory: Memory) -> None:
    ids = count_lines(memory, *FILES)
    (made,) = propose(memory.store, found(memory, ids[-1]))
    assert (made.count, "right in 4 of 4" in made.proof) == (4, True)
    assert propose(memory.store, found(memory)) == []
    assert open_proposals(memory.store) == [made]
    assert [*memory.log.read(kinds=["run_started"])] == []
    assert not [*memory.store.artefacts("routine")]


def test_only_groups_with_a_new_session_are_looked_at(memory: Memory) -> None:
    count_lines(memory, *FILES)
    (other,) = [memory.add_trace(session("say hello", "echo hello > hello.txt"))]
    assert found(memory, other) == []
    assert len(found(memory)) == 1


def test_what_does_the_same_every_time_or_was_wrong_is_not_proposed(memory: Memory) -> None:
    for _ in range(3):
        memory.add_trace(session("greet", "echo hello > hello.txt"))
    assert propose(memory.store, found(memory)) == []
    count_lines(memory, *FILES)
    for proof in (
        TrialCounts(right=3, handed_over=0, wrong=1, summary="…"),
        TrialCounts(right=1, handed_over=3, wrong=0, summary="…"),
    ):
        right = proof.right / 4
        poor = [
            msgspec.structs.replace(one, proof=proof, right_share=right) for one in found(memory)
        ]
        assert propose(memory.store, poor) == []


def test_the_next_session_is_told_once_within_the_bound(memory: Memory) -> None:
    count_lines(memory, *FILES)
    (made,) = propose(memory.store, found(memory))
    advice = Advice(memory)
    said = advice.to(event("UserPromptSubmit", prompt="hello"))
    assert said.startswith(HEADING)
    assert cost(said) <= MOST_TOKENS
    assert (
        "em can do “count the pending lines of orders.csv into orders.txt” without a model" in said
    )
    assert "right in 4 of 4, handed over in 0, wrong in 0" in said
    assert f"em routine accept {made.key}" in said
    assert advice.to(event("UserPromptSubmit", prompt="hello")) == ""
    note_told(memory.store, advice.to_note)
    assert Advice(memory).to(event("UserPromptSubmit", prompt="hello")) == ""


def test_a_hook_that_came_before_the_service_does_not_use_up_the_telling(
    memory: Memory, tmp_path: Path
) -> None:
    count_lines(memory, *FILES)
    propose(memory.store, found(memory))
    service = HookService(memory, tmp_path / "s")
    (tmp_path / "s.missed").write_text('{"hook_event_name": "UserPromptSubmit", "cwd": "/"}\n')
    service._take_missed()
    assert service._to_record.qsize() == 1
    assert service.answer(event("UserPromptSubmit", prompt="hello")) is not None


def test_a_person_sees_it_and_accepts_it(memory: Memory, tmp_path: Path) -> None:
    count_lines(memory, *FILES)
    db = str(tmp_path / "em.db")
    ran = em("routine", "suggest", "--allow-unlabelled", "--propose", "--db", db)
    (made,) = open_proposals(memory.store)
    assert f"em routine accept {made.key}" in ran.out
    kept = em("routine", "accept", made.key, "--name", "count_lines", "--no-allow", "--db", db)
    assert kept.code == 0, kept.err
    assert open_proposals(memory.store) == []
    assert "proposed:" not in em("routine", "suggest", "--db", db).out
    assert propose(memory.store, found(memory)) == []
    assert em("routine", "accept", "nonsense", "--db", db).code == 1


def test_requests_that_only_begin_alike_are_one_group(memory: Memory) -> None:
    news = ["fix the tooltip", "add dark mode", "repair keyboard focus", "show totals"]
    for number, one in enumerate(news):
        command = f"echo '{one}' > news-{number}.7.txt"
        memory.add_trace(session(f"release {number}.7: {one}", command))
    assert [one.count for one in found(memory)] == [len(news)]


def test_what_is_kept_is_not_kept_a_second_time(memory: Memory, tmp_path: Path) -> None:
    count_lines(memory, *FILES)
    db = str(tmp_path / "em.db")
    (made,) = propose(memory.store, found(memory))
    assert (
        em("routine", "accept", made.key, "--name", "count_lines", "--no-allow", "--db", db).code
        == 0
    )
    again = em("routine", "accept", made.key, "--name", "twice", "--db", db)
    assert (again.code, "count_lines@1" in again.err) == (2, True)
    assert [one.name for one in memory.store.artefacts("routine")] == ["count_lines"]
    listed = em("routine", "suggest", "--allow-unlabelled", "--db", db).out
    assert "kept already as count_lines@1" in listed
    assert "--keep" not in listed


def test_a_prompt_that_is_a_recorded_one_with_other_values_has_the_inputs(memory: Memory) -> None:
    memory.compile(count_lines(memory, *FILES), name="count_pending")
    told = [
        Advice(memory).to(event("UserPromptSubmit", prompt=prompt))
        for prompt in (
            "count the pending lines of new.csv into some.txt",
            "I want the pending lines of new.csv counted into some.txt",
        )
    ]
    assert all("The routine count_pending" in said for said in told)
    assert ["“new.csv”" in said and "“some.txt”" in said for said in told] == [True, False]


def test_a_routine_is_told_only_where_its_files_are(memory: Memory, tmp_path: Path) -> None:
    routine = """
name: bump_version
description: bump the version of the package
steps:
  - {id: look, type: tool.call, tool: FileText, args: {file_path: pyproject.toml}, save_as: text}
  - {id: end, type: return, value: "{{ text }}"}
"""
    keep_routine(memory.store, {"routine.yaml": routine}, [])
    prompt = event("UserPromptSubmit", prompt="bump the version of the package", cwd=str(tmp_path))
    (tmp_path / "package.json").write_text("{}")
    assert Advice(memory).to(prompt) == ""
    (tmp_path / "pyproject.toml").write_text("")
    assert "bump_version" in Advice(memory).to(prompt)
    # An agent that went into a folder of the repository still works on that.
    (tmp_path / "src").mkdir()
    below = {**prompt, "cwd": str(tmp_path / "src")}
    assert Advice(memory).to(below) == ""
    (tmp_path / ".git").mkdir()
    assert "bump_version" in Advice(memory).to(below)


def test_a_proposal_is_forgotten_with_its_sessions(memory: Memory) -> None:
    first, *_ = count_lines(memory, *FILES)
    (made,) = propose(memory.store, found(memory))
    memory.forget([one.id for one in memory.log.read(stream=f"trace/{first}")])
    assert open_proposals(memory.store) == []
    with pytest.raises(NotFound):
        find_proposal(memory.store, made.key)


def until_gone(one: Proposer) -> None:
    for _ in range(200):
        one.look()
        if one._process is None:
            return
        time.sleep(0.05)
    raise AssertionError("it does not end")


def test_it_looks_when_sessions_are_quiet_at_all_of_them_together(tmp_path: Path) -> None:
    code = f"import sys; open({str(tmp_path / 'asked')!r}, 'a').write(' '.join(sys.argv[1:]) + '|')"
    one = Proposer([sys.executable, "-c", code], quiet=0.0)
    one.look()
    assert one._process is None  # nothing is new
    one.add(["a", "b"])
    one.add(["a"])
    one.look()
    one.add(["c"])
    one.look()  # not a second one at a time
    until_gone(one)
    assert (tmp_path / "asked").read_text() == "--about a --about b|--about c|"
    slow = Proposer([sys.executable, "-c", code], quiet=3600.0)
    slow.add(["a"])
    slow.look()
    assert slow._process is None


def test_one_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposer, "MOST_SECONDS", 0.0)
    one = Proposer([sys.executable, "-c", "import time; time.sleep(600)"], quiet=0.0)
    one.add(["a"])
    one.look()
    until_gone(one)


def test_sessions_that_stop_or_end_are_looked_at(memory: Memory, tmp_path: Path) -> None:
    service = HookService(memory, tmp_path / "s")
    transcript = tmp_path / "s1.jsonl"
    transcript.write_text("".join(lines_of_a_session(tmp_path)))
    for name in ("Stop", "SessionEnd"):
        service._proposer._new.clear()
        service.record(event(name, transcript_path=str(transcript)))
        assert [*service._proposer._new] == [one.id for one in memory.traces()]
