"""What can be about someone has a subject, or is made of something that has one."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from em import Engine, Memory
from em.traces.trace import Mission, ToolCall, Trace

ANA, BOB = "quokkaana", "wombatbob"


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path / "em.db") as memory:
        yield memory


def stored(memory: Memory) -> str:
    events = [event.body for event in memory.log.read()]
    return repr(events) + repr([one.body for one in memory.store.artefacts()])


def close_account(memory: Memory, name: str, subject: str | None = None) -> str:
    found = {"id": f"U-{name}", "name": name}
    calls = [
        ToolCall(tool="find_user", args={"name": name}, result=found),
        ToolCall(tool="close", args={"user_id": found["id"]}, result={"closed": found["id"]}),
    ]
    mission = Mission("Close the account", {"name": name})
    trace = Trace(mission=mission, events=calls, outcome="success", final_output=found["id"])
    return memory.add_trace(trace, subject=subject)


TOOLS: dict[str, Any] = {
    "find_user": lambda name: {"id": f"U-{name}", "name": name},
    "close": lambda user_id: {"closed": user_id},
}


def test_every_event_of_a_run_is_about_its_subject_also_after_a_resume(
    memory: Memory, tmp_path: Path
) -> None:
    (tmp_path / "flow.yaml").write_text(
        "workflows:\n  w:\n    params: [x]\n    steps:\n"
        "      - {name: asked, tool: ask, inputs: {message: 'go on?'}}\n"
        "      - {name: inner, tool: run_routine, inputs: {routine: close_the_account,"
        " input: {name: '{{params.x}}'}}}\n"
    )
    memory.compile(close_account(memory, "someone"), name="close_the_account")
    flow = memory.workflows(tmp_path / "flow.yaml", TOOLS)
    runs = {who: flow.start("w", {"x": stem}, subject=who) for who, stem in WHO.items()}
    for run in runs.values():
        assert flow.resume(run.run_id, answers={"asked": {"answer": "yes"}}).status == "ok"
    for who, run in runs.items():
        about = {e.stream for e in memory.log.read(subject=who)}
        assert f"run/{run.run_id}" in about
        assert len(about) == 2, "the run, and the run of the routine inside of it"
        streams = [[*memory.log.read(stream=stream)] for stream in about]
        assert {event.subject for events in streams for event in events} == {who}
    memory.forget(subject="ana")
    assert ANA not in stored(memory)
    assert BOB in stored(memory)


WHO = {"ana": ANA, "bob": BOB}


def test_runs_of_a_forgotten_routine_go_with_it(memory: Memory) -> None:
    routine = memory.compile(close_account(memory, "quokkaana", "ana"))
    other = memory.compile(close_account(memory, "wombatbob", "bob"), name="other")
    memory.run(routine, {"name": "first"}, TOOLS)
    memory.run(other, {"name": "second"}, TOOLS)
    memory.forget(subject="ana")
    assert ANA not in stored(memory)
    assert "U-first" not in stored(memory), "the run was made of what the routine recorded"
    assert "U-second" in stored(memory)


def test_one_engine_serves_several_subjects_and_forgets_one(memory: Memory) -> None:
    engine = Engine(memory.store, name="shared", subject=lambda given: str(given["who"]))
    seen: list[str] = []

    @engine.function()
    def look(who: str, text: str) -> str:
        seen.append(who)
        return f"saw {text}"

    @engine.set_agent
    def agent(who: str, text: str) -> str:
        return look(who, text)

    for who, stem in WHO.items():
        for _ in range(2):
            result = engine(who, stem)
            assert result.problem is None
        assert result.hit
    erasure = memory.forget(subject="ana")
    assert {"behaviour_recorded", "behaviour_replayed"} <= set(erasure.gone["events"])
    assert ANA not in stored(memory)
    assert engine("bob", BOB).hit
    # Someone who was forgotten may come back.
    assert not engine("ana", ANA).hit
    assert engine("ana", ANA).hit
    memory.forget(subject="ana")
    assert ANA not in stored(memory)
    assert engine("bob", BOB).hit


def test_feedback_about_several_people_goes_with_each(memory: Memory) -> None:
    failed = {
        "task": "load the orders",
        "outcome": "success",
        "steps": [
            {"action": "insert", "args": {"total": "1,5"}, "error": "invalid total"},
            {"action": "insert", "args": {"total": "1.5"}, "observation": "ok"},
        ],
    }
    (lesson,) = memory.reflect([memory.add_trace(failed)])
    for who, stem in WHO.items():
        memory.feedback(lesson.id, "success", task=f"load for {stem}", subject=who)
    memory.forget(subject="ana")
    assert ANA not in stored(memory)
    assert BOB in stored(memory)


def test_what_a_routine_learnt_from_an_answer_goes_with_the_run(
    memory: Memory, tmp_path: Path
) -> None:
    call = ToolCall(tool="send", args={"to": "x", "note": "kind regards"}, result={"id": 1})
    mission = Mission("Send a note", {"to": "x"})
    trace = Trace(mission=mission, events=[call], outcome="success", final_output=1)
    routine = memory.compile(memory.add_trace(trace), inputs=["note"])
    tools = {"send": lambda to, note: {"id": 1}}
    result = memory.run(routine, {"to": "y"}, tools, subject="ana")
    assert result.status == "needs_input", result
    assert result.pending_prompt is not None
    name = result.pending_prompt.fields[0]["name"]
    done = memory.resume(result.run_id, tools, answers={"inputs": {name: ANA}})
    assert done.status == "ok", done
    memory.forget(subject="ana")
    assert ANA not in stored(memory)


@pytest.mark.parametrize("key", ["", ", idempotency_key: 'own {{params.x}}'"])
def test_a_workflow_goes_with_the_routine_that_ran_inside_of_it(
    memory: Memory, tmp_path: Path, key: str
) -> None:
    memory.compile(close_account(memory, "quokkaana", "ana"), name="close_the_account")
    memory.compile(close_account(memory, "wombatbob", "bob"), name="other")
    (tmp_path / "flow.yaml").write_text(
        "workflows:\n"
        + "".join(
            f"  {name}:\n    params: [x]\n    steps:\n"
            "      - {name: before, tool: say, inputs: {text: kept}}\n"
            f"      - {{name: inner, tool: run_routine, inputs: {{routine: {name},"
            f" input: {{name: '{{{{params.x}}}}'}}}}{key}}}\n"
            "      - {name: after, tool: say, memory: {needs: [inner]},"
            " inputs: {text: '{{memory.inner_output}}'}}\n"
            "      - {name: apart, tool: say, memory: {needs: [before]},"
            " inputs: {text: '{{memory.before_output}}'}}\n"
            for name in ("close_the_account", "other")
        )
    )
    flow = memory.workflows(tmp_path / "flow.yaml", {**TOOLS, "say": lambda text: f"said {text}"})
    for name, given in (("close_the_account", "first"), ("other", "second")):
        assert flow.start(name, {"x": given}).outputs["after"] == f"said U-{given}"
    erasure = memory.forget(subject="ana")
    left = stored(memory)
    assert "U-first" not in left
    assert "said U-second" in left
    assert left.count("said said kept") == 4, "a step that has nothing to do with it stays"
    assert {"run_started", "step_done", "run_ended"} <= set(erasure.gone["events"])


def test_items_and_parallel_steps_go_with_what_they_used(memory: Memory, tmp_path: Path) -> None:
    for who, stem in WHO.items():
        memory.observe(who, f"Lives at {stem}.")
    (tmp_path / "flow.yaml").write_text(
        "workflows:\n  w:\n    parallel: true\n    steps:\n"
        + "".join(
            f"      - {{name: look_{who}, tool: recall,"
            f" inputs: {{query: lives, subject: {who}}}}}\n"
            f"      - {{name: each_{who}, tool: say, memory: {{needs: [look_{who}]}},"
            f" for_each: '{{{{memory.look_{who}_output}}}}', as: one,"
            " inputs: {text: '{{one}}'}}\n"
            for who in WHO
        )
    )
    flow = memory.workflows(tmp_path / "flow.yaml", {"say": lambda text: f"said {text}"})
    run = flow.start("w")
    assert run.status == "ok", run
    assert f"said Lives at {ANA}." in stored(memory)
    before = stored(memory).count(BOB)
    memory.forget(subject="ana")
    assert ANA not in stored(memory)
    assert before - stored(memory).count(BOB) <= 1, "at most the output of the whole run"
