"""What a trace says about its outcome decides whether it is compiled, and what the package says."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.cli.em_command import em

from em import Memory
from em.compiler.compile_trace import (
    compile_file,
    compile_several,
    compile_trace,
    compile_trace_file,
)
from em.compiler.suggestions import suggest
from em.errors import EmError, RoutineError
from em.traces.catalogue import attempts, get_traces
from em.traces.trace import Mission, Outcome, ToolCall, Trace
from em.traces.transcripts import read_traces


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path / "em.db") as memory:
        yield memory


def attempt(outcome: Outcome, city: str = "Lisbon", goal: str = "find the weather") -> Trace:
    return Trace(
        mission=Mission(goal, {"city": city}),
        events=[ToolCall(tool="get_weather", args={"city": city}, result={"sky": f"{city} clear"})],
        final_output={"sky": f"{city} clear"},
        outcome=outcome,
    )


def written(path: Path, trace: Trace) -> Path:
    path.write_bytes(msgspec.json.encode(trace))
    return path


def test_a_failed_trace_is_compiled_only_if_that_is_allowed(memory: Memory, tmp_path: Path) -> None:
    failed = attempt("failure")
    with pytest.raises(RoutineError, match="says that it failed") as raised:
        compile_trace(failed)
    assert "allow_failed" in raised.value.fix
    assert "em traces label TRACE success" in raised.value.fix
    assert compile_trace(failed, allow_failed=True).draft.recordings
    file = written(tmp_path / "t.json", failed)
    with pytest.raises(RoutineError, match="says that it failed"):
        compile_trace_file(file, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    compile_trace_file(file, tmp_path / "out", allow_failed=True)
    trace_id = memory.add_trace(failed)
    with pytest.raises(RoutineError, match="says that it failed"):
        memory.compile(trace_id)
    assert memory.compile(trace_id, allow_failed=True).name


def test_several_traces_that_all_failed_are_refused(memory: Memory) -> None:
    ids = [memory.add_trace(attempt("failure", city)) for city in ("Lisbon", "Porto")]
    with pytest.raises(RoutineError, match="says that it failed"):
        memory.compile(ids)
    ids.append(memory.add_trace(attempt("unknown", "Faro")))
    made = compile_several(get_traces(memory.store, ids))
    assert made.draft.outcome == "unknown"
    assert made.same_way == ids[2:]


def test_an_unlabelled_trace_is_compiled_and_marked(memory: Memory, tmp_path: Path) -> None:
    draft = compile_trace_file(written(tmp_path / "t.json", attempt("unknown")), tmp_path / "out")
    assert draft.outcome == "unknown"
    assert (tmp_path / "out/routine.yaml").read_text().startswith("# outcome unknown: ")
    assert json.loads((tmp_path / "out/recording.json").read_text())["outcome"] == "unknown"
    draft = compile_trace_file(written(tmp_path / "t.json", attempt("success")), tmp_path / "good")
    assert draft.outcome == "success"
    assert "outcome unknown" not in (tmp_path / "good/routine.yaml").read_text()
    assert "outcome" not in json.loads((tmp_path / "good/recording.json").read_text())


def test_the_command_says_that_the_outcome_is_unknown(tmp_path: Path) -> None:
    file = written(tmp_path / "t.json", attempt("unknown"))
    done = em("compile", str(file), "-o", str(tmp_path / "out"))
    assert done.code == 0, done.err
    assert "outcome unknown" in done.err
    report = em("compile", str(file), "-o", str(tmp_path / "out"), "--json").json
    assert report["outcome"] == "unknown"
    written(file, attempt("failure"))
    done = em("compile", str(file), "-o", str(tmp_path / "bad"))
    assert done.code != 0
    assert "--allow-failed" in done.err
    done = em("compile", str(file), "-o", str(tmp_path / "bad"), "--allow-failed")
    assert done.code == 0, done.err
    assert "says that it failed" in done.err


def test_suggestions_are_of_successes_unless_unlabelled_traces_are_allowed(memory: Memory) -> None:
    for outcome in ("success", "unknown", "unknown", "failure"):
        memory.add_trace(attempt(outcome))  # type: ignore[arg-type]
    assert [one.count for one in memory.suggest(at_least=1)] == [1]
    assert memory.suggest(at_least=2) == []
    (found,) = memory.suggest(at_least=1, allow_unlabelled=True)
    assert (found.count, found.problem) == (3, "")


def test_compiling_in_bulk_takes_successes_unless_unlabelled_traces_are_allowed(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = memory.add_trace(attempt("success", goal="one"))
    memory.add_trace(attempt("unknown", goal="one"))
    unlabelled = memory.add_trace(attempt("unknown", goal="two"))
    memory.add_trace(attempt("failure", goal="three"))
    memory.add_trace(msgspec.structs.replace(attempt("success", goal="four"), incomplete="lost"))
    assert attempts(memory.store) == {"one": [good]}
    assert attempts(memory.store, allow_unlabelled=True).keys() == {"one", "two"}
    with pytest.raises(EmError, match=r"does not say whether it succeeded.*em traces label TRACE"):
        memory.compile(unlabelled, allow_unlabelled=False)
    memory.close()
    monkeypatch.setenv("EM_DB", str(tmp_path / "em.db"))
    done = em("compile", "--all", "--json").json
    assert (done["kept"].keys(), done["failed"]) == ({"one"}, {})
    done = em("compile", "--all", "--allow-unlabelled", "--json").json
    assert done["kept"].keys() == {"one", "two"}
    assert "--allow-unlabelled" in em("routine", "suggest", "--at-least", "2").err


def test_one_bad_trace_is_left_out_and_reported(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [memory.add_trace(attempt("success", goal="one")) for _ in range(2)]
    silent = msgspec.structs.replace(attempt("success", goal="one"), events=[])
    bad, alone = memory.add_trace(silent), msgspec.structs.replace(silent, mission=Mission("two"))
    memory.add_trace(alone)
    assert memory.compile([*ids, bad]).name
    memory.close()
    monkeypatch.setenv("EM_DB", str(tmp_path / "em.db"))
    ran = em("compile", "--all", "--json")
    assert ran.code == 1
    assert ran.json["kept"].keys() == {"one"}
    assert ran.json["failed"].keys() == {"two"}
    assert ran.json["left_out"].keys() == {bad}
    assert bad in em("compile", "--all").err


def chat(**fields: Any) -> bytes:
    return json.dumps({**fields, "messages": [{"role": "user", "content": "hello"}]}).encode()


@pytest.mark.parametrize(
    ("fields", "outcome"),
    [
        ({"task_id": 1, "instruction": "x", "reward": 1.0}, "success"),  # tau-bench: 1.0 is all
        ({"task_id": 1, "instruction": "x", "reward": 1}, "success"),
        ({"task_id": 1, "instruction": "x", "reward": 0.0}, "failure"),
        ({"task_id": 1, "instruction": "x", "reward": 0.5}, "failure"),
        ({"task_id": 1, "instruction": "x", "reward": 3.0}, "unknown"),
        ({"task_id": 1, "instruction": "x"}, "unknown"),
        ({"reward": 1.0}, "unknown"),  # of how many?
        ({"reward": 0.2}, "unknown"),
        ({"reward": 0.0}, "unknown"),
        ({"reward": 17}, "unknown"),
        ({"reward": True}, "success"),
        ({"reward": False}, "failure"),
    ],
)
def test_a_reward_is_a_label_only_where_its_maximum_is_known(
    fields: dict[str, Any], outcome: str
) -> None:
    (kept,) = read_traces(chat(**fields), "chat.json")
    assert kept.trace.outcome == outcome


def test_the_files_that_tau_bench_writes_are_read() -> None:
    talk = [
        {"role": "user", "content": "cancel #W1"},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c", "function": {"name": "cancel", "arguments": "{}"}, "type": "function"}
        ]},
        {"role": "tool", "tool_call_id": "c", "name": "cancel", "content": "Error: no"},
    ]  # fmt: skip
    runs = [
        {"task_id": n, "reward": reward, "info": {"task": {"instruction": "You want to cancel."}},
         "traj": talk, "trial": 0}
        for n, reward in enumerate((1.0, 0.0))
    ]  # fmt: skip
    good, bad = (kept.trace for kept in read_traces(json.dumps(runs).encode(), "results.json"))
    assert (good.outcome, bad.outcome) == ("success", "failure")
    assert (good.mission.goal, good.calls[0].error) == ("You want to cancel.", "Error: no")


def test_a_history_of_openhands_is_a_success_only_if_it_says_so() -> None:
    history = [{"action": "run", "source": "agent", "args": {"command": "ls"}, "id": 1}]
    for success, outcome in (
        (True, "success"),
        (False, "failure"),
        (0.7, "unknown"),
        (1, "unknown"),
    ):
        data = json.dumps({"history": history, "success": success}).encode()
        (kept,) = read_traces(data, "h.json")
        assert kept.trace.outcome == outcome


def test_a_file_that_failed_is_refused_by_compile_file_too(tmp_path: Path) -> None:
    with pytest.raises(RoutineError, match="says that it failed"):
        compile_file(written(tmp_path / "t.json", attempt("failure")))


def in_vain(outcome: Outcome = "unknown") -> Trace:
    """An agent that was not allowed to write, and said that it had."""
    return Trace(
        mission=Mission("create notes.md"),
        events=[
            ToolCall(tool="list_files", args={}, result=["a.py"], effect="read"),
            ToolCall(
                tool="write_file",
                args={"path": "notes.md", "text": "# Notes"},
                error="permission was not granted",
                effect="write",
            ),
        ],
        final_output="I've created notes.md.",
        outcome=outcome,
    )


def test_a_trace_whose_every_write_failed_is_not_compiled(memory: Memory) -> None:
    with pytest.raises(RoutineError, match=r"everything .* failed.*write_file") as raised:
        compile_trace(in_vain())
    assert "em traces label TRACE success" in raised.value.fix
    stored = [memory.add_trace(in_vain()) for _ in range(2)]
    with pytest.raises(RoutineError, match="everything that the trace tried to change failed"):
        compile_several(list(get_traces(memory.store, stored)))
    assert suggest(memory.store, allow_unlabelled=True) == []
    assert compile_trace(in_vain("success")).draft.routine.steps
    assert compile_trace(in_vain(), allow_failed=True).draft.routine.steps


def test_a_failed_call_that_is_declared_as_a_read_is_no_failed_change() -> None:
    seen = attempt("unknown")
    failed = ToolCall(tool="check_sky", args={"city": "Lisbon"}, error="no camera there")
    trace = msgspec.structs.replace(seen, events=[failed, *seen.events])
    with pytest.raises(RoutineError):
        compile_trace(trace)
    assert compile_trace(trace, declared={"check_sky": "read"}).draft.routine.steps
