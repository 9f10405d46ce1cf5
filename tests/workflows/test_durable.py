"""A run survives its process: killed anywhere it goes on, and no effect happens twice unasked."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from flows import Write
from ten import EVERY, OUTPUT, STEPS, write_flow
from tests.forks import run_python

from em import Memory
from em.errors import NotFound, PositionConflict, UsageError, WorkflowError
from em.log.verify import verify
from em.store.sqlite import SqliteStore

WORKER = Path(__file__).with_name("worker.py")


def work(folder: Path, answers: Any = None, deadly: str = "") -> Any:
    run = run_python(str(WORKER), str(folder), "run-1", json.dumps(answers or {}), deadly)
    if deadly and run.code == -9:
        return None
    assert run.code == 0, run.err
    return run.json


def effects(folder: Path) -> list[str]:
    lines = (folder / "effects.txt").read_text().split("\n")[:-1]
    return [line for line in lines if line.startswith("write")]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", range(STEPS))
def test_killed_at_any_step_no_effect_happens_twice_and_none_is_lost(
    tmp_path: Path, step: int, when: str
) -> None:
    write_flow(tmp_path, "act")
    assert work(tmp_path, deadly=f"{step}:{when}") is None
    result = work(tmp_path)
    if step % 2:  # an effect was under way: nobody knows, and that is asked
        assert (result["status"], result["asks"]) == ("needs_input", f"s{step}?")
        happened = when == "after"
        said = {"happened": happened, "result": OUTPUT[: 3 + step] if happened else None}
        result = work(tmp_path, {f"s{step}?": said})
    assert (result["status"], result["output"]) == ("ok", OUTPUT)
    assert effects(tmp_path) == EVERY
    again = work(tmp_path)
    assert (again["status"], again["output"], again["writes"]) == ("ok", OUTPUT, 0)
    with SqliteStore(tmp_path / "em.db") as store:
        assert verify(store).ok


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", range(1, STEPS, 2))
def test_with_idempotency_keys_it_goes_on_without_asking(
    tmp_path: Path, step: int, when: str
) -> None:
    write_flow(tmp_path, "keyed")
    assert work(tmp_path, deadly=f"{step}:{when}") is None
    result = work(tmp_path)
    assert (result["status"], result["output"]) == ("ok", OUTPUT)
    assert effects(tmp_path) == EVERY


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_around_every_write_of_the_journal(tmp_path: Path, when: str) -> None:
    number = 0
    while True:
        number += 1
        folder = tmp_path / str(number)
        folder.mkdir()
        write_flow(folder, "keyed")
        if work(folder, deadly=f"write:{number}:{when}") is not None:
            break  # there is no such write: all were tried
        result = work(folder)
        assert (result["status"], result["output"]) == ("ok", OUTPUT)
        assert effects(folder) == EVERY
    assert number > STEPS


@pytest.mark.parametrize("step", [1, 4, 9])
def test_a_parallel_workflow_survives_too(tmp_path: Path, step: int) -> None:
    write_flow(tmp_path, "keyed", head="    parallel: true\n")
    assert work(tmp_path, deadly=f"{step}:after") is None
    result = work(tmp_path)
    assert (result["status"], result["output"]) == ("ok", OUTPUT)
    assert effects(tmp_path) == EVERY


def test_a_run_goes_on_whatever_became_of_its_file(write: Write, tmp_path: Path) -> None:
    text = """
workflows:
  w:
    steps:
      - {name: a, inputs: {prompt: a}}
      - {name: b, gate: true, memory: {needs: [a]}, inputs: {prompt: "{{memory.a}} b"}}
"""
    waits = write(text).start("w", run_id="r1")
    other = write(text.replace("} b", "} c"))
    assert other.resume(waits.run_id, answers={"b": {"approve": True}}).output == "[[a] b]"


def test_the_same_run_id_is_the_same_run(write: Write, memory: Memory) -> None:
    flow = write("""
workflows:
  w:
    params: [x, {y: 1}]
    steps: [{name: a, inputs: {prompt: "{{params.x}}{{params.y}}"}}]
  v:
    steps: [{name: a, inputs: {prompt: v}}]
""")
    first = flow.start("w", {"x": "1"}, run_id="mine")
    before = memory.log.head_seq()
    again = flow.start("w", {"x": "1"}, run_id="mine")
    assert (again.output, again.status) == (first.output, "ok")
    assert flow.resume("mine").output == first.output
    assert memory.log.head_seq() == before
    with pytest.raises(UsageError, match="'mine'"):
        flow.start("v", run_id="mine")
    with pytest.raises(Exception, match="this input differs"):
        flow.start("w", {"x": "2"}, run_id="mine")
    with pytest.raises(WorkflowError, match="over"):
        flow.resume("mine", answers={"a": {"approve": True}})
    with pytest.raises(NotFound, match="no workflow run 'nope'"):
        flow.resume("nope")


def test_a_second_worker_on_the_same_run_is_fenced_off(write: Write) -> None:
    inside, go = threading.Event(), threading.Event()

    def hold() -> str:
        inside.set()
        go.wait(60)
        return "held"

    text = "workflows: {w: {steps: [{name: a, tool: hold}, {name: b, inputs: {prompt: b}}]}}"
    flow = write(text, {"hold": hold})
    failures: list[PositionConflict] = []

    def first() -> None:
        try:
            flow.start("w", run_id="r")
        except PositionConflict as error:
            failures.append(error)

    thread = threading.Thread(target=first)
    thread.start()
    assert inside.wait(60)
    # The effect is under way there; here nobody knows of it, and a person says what became of it.
    asked = flow.start("w", run_id="r")
    assert asked.pending_prompt is not None
    done = flow.resume("r", answers={"a?": {"happened": True, "result": "seen"}})
    go.set()
    thread.join(60)
    assert (done.status, done.outputs["a"]) == ("ok", "seen")
    assert isinstance(failures[0], PositionConflict)


def test_a_failed_run_may_be_tried_again_at_the_step_that_failed(write: Write) -> None:
    made: list[str] = []
    problems = [OSError("down")]

    def first() -> str:
        made.append("first")
        return "1"

    def second() -> str:
        if problems:
            raise problems.pop()
        return "2"

    text = """
workflows:
  w:
    steps:
      - {name: a, tool: first}
      - {name: b, tool: second, effect: read}
"""
    flow = write(text, {"first": first, "second": second})
    failed = flow.start("w")
    assert failed.status == "failed"
    assert flow.resume(failed.run_id).status == "failed"  # told again, and nothing done
    done = flow.resume(failed.run_id, retry=True)
    assert (done.status, done.output, made) == ("ok", "2", ["first"])


def test_for_each_goes_on_with_the_items_that_are_left(write: Write) -> None:
    made: list[int] = []
    broken = [True]

    def act(n: int) -> int:
        if n == 2 and broken:
            raise OSError("down")
        made.append(n)
        return n * 10

    text = """
workflows:
  w:
    steps:
      - {name: a, tool: act, for_each: [1, 2, 3], effect: read, inputs: {n: "{{item}}"}}
"""
    flow = write(text, {"act": act})
    failed = flow.start("w")
    broken.clear()
    done = flow.resume(failed.run_id, retry=True)
    assert (done.output, made) == ([10, 20, 30], [1, 2, 3])


def test_what_a_step_was_brought_from_elsewhere_is_the_same_after_a_resume(
    write: Write, memory: Memory
) -> None:
    memory.observe("ana", "bees like lime trees")
    text = """
workflows:
  w:
    steps:
      - name: a
        memory: {needs: ["recall(bees, 5)"]}
        inputs: {prompt: "{{memory.recall}}"}
      - {name: b, tool: ask, memory: {needs: [a]}, inputs: {message: "{{memory.a}}?"}}
"""
    flow = write(text)
    waits = flow.start("w")
    memory.observe("ana", "bees like clover")
    done = flow.resume(waits.run_id, answers={"b": {"answer": "ok"}})
    assert done.outputs["a"] == "[bees like lime trees]"


def test_a_secret_in_a_parameter_is_not_written_and_must_be_given_again(write: Write) -> None:
    key = "sk-ant-" + "api03-" + "a1B2" * 20
    text = """
workflows:
  w:
    params: [key]
    steps:
      - {name: a, tool: ask, inputs: {message: "Go on?"}}
      - {name: b, inputs: {prompt: "{{params.key}}"}}
"""
    flow = write(text)
    waits = flow.start("w", {"key": key})
    assert key not in str([event.body for event in Memory("em.db").log.read()])
    with pytest.raises(Exception, match="was a secret"):
        flow.resume(waits.run_id, answers={"a": {"answer": "x"}})
    done = flow.resume(waits.run_id, params={"key": key}, answers={"a": {"answer": "x"}})
    assert done.output == "[[redacted:anthropic-key]]"  # the model was not shown it


def test_a_secret_in_the_prompt_must_be_given_again(write: Write, memory: Memory) -> None:
    key = "sk-ant-" + "api03-" + "a1B2" * 20
    text = """
workflows:
  w:
    steps:
      - {name: a, tool: ask, inputs: {message: "Go on?"}}
      - {name: b, memory: {needs: [user_prompt]}, inputs: {prompt: "{{memory.user_prompt}}"}}
"""
    flow = write(text)
    waits = flow.start("w", prompt=key)
    with pytest.raises(WorkflowError, match="held a secret"):
        flow.resume(waits.run_id, answers={"a": {"answer": "x"}})
    done = flow.resume(waits.run_id, prompt=key, answers={"a": {"answer": "x"}})
    assert done.output == "[[redacted:anthropic-key]]"  # the model was not shown it


def test_the_answer_to_a_secret_field_is_never_written(write: Write, memory: Memory) -> None:
    used: list[str] = []

    def log_in(pin: str) -> str:
        used.append(pin)
        return "in"

    text = """
workflows:
  w:
    steps:
      - {name: pin, tool: ask, inputs: {message: "PIN?", fields: [{name: pin, type: secret}]}}
      - {name: go, tool: log_in, memory: {needs: [pin]}, inputs: {pin: "{{memory.pin}}"}}
"""
    flow = write(text, {"log_in": log_in})
    waits = flow.start("w")
    done = flow.resume(waits.run_id, answers={"pin": {"pin": "hunter-7-two"}})
    assert (done.output, used) == ("in", ["hunter-7-two"])
    assert "hunter-7-two" not in str([event.body for event in memory.log.read()])
