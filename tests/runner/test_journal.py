"""A run survives its process: what was done is not done again, what is unknown is asked."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.forks import run_python

from em import Memory
from em.errors import NotFound, PositionConflict, RoutineError
from em.log.event import EventQuery
from em.log.verify import verify
from em.runner.engine import arun_routine, resume_run, run_routine
from em.runner.history import read_run
from em.runner.journal import Journal
from em.store.sqlite import SqliteStore

WORKER = Path(__file__).with_name("worker.py")
STEPS = 10


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tools = ("look", "act")
    steps = "".join(
        f"  - {{id: s{n}, type: tool.call, tool: {tools[n % 2]},"
        f' args: {{step: {n}, x: "{{{{ x{n} }}}}"}}, save_as: x{n + 1}}}\n'
        for n in range(STEPS)
    )
    (tmp_path / "routine.yaml").write_text(
        "name: ten\ntools: [{name: look, effect: read}, {name: act, effect: write}]\n"
        f'steps:\n{steps}  - {{id: end, type: return, value: "{{{{ x{STEPS} }}}}"}}\n'
    )
    return tmp_path


def work(folder: Path, run_id: str = "new", answers: Any = None, deadly: str = "") -> Any:
    given = (str(folder / "em.db"), str(folder), run_id, json.dumps(answers or {}), deadly)
    run = run_python(str(WORKER), *given)
    if deadly:
        assert run.code == -9, run.err
        return None
    assert run.code == 0, run.err
    return run.json


def the_run(folder: Path) -> str:
    with SqliteStore(folder / "em.db") as store:
        (started,) = store.read(EventQuery(kinds=["run_started"]))
        return started.stream.removeprefix("run/")


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", range(STEPS))
def test_a_run_killed_at_any_step_goes_on_and_no_effect_happens_twice(
    folder: Path, step: int, when: str
) -> None:
    work(folder, deadly=f"{step}:{when}")
    run_id = the_run(folder)
    result = work(folder, run_id)
    if step % 2:  # a write was under way: nobody knows, and that is asked
        assert (result["status"], result["step"]) == ("needs_input", f"s{step}?")
        happened = {"happened": when == "after", "result": step + 1}
        result = work(folder, run_id, {f"s{step}?": happened})
    assert (result["status"], result["output"]) == ("ok", STEPS)
    done = (folder / "effects.txt").read_text().split("\n")[:-1]
    writes = [line for line in done if line.startswith("write")]
    assert writes == [f"write {n}" for n in range(1, STEPS, 2)]
    reads = [line for line in done if line.startswith("read")]
    again = [f"read {step}"] if when == "after" and step % 2 == 0 else []
    if (step, when) == (1, "before"):
        again = ["read 0"]  # nothing had an effect: the run looks again
    assert sorted(reads) == sorted([f"read {n}" for n in range(0, STEPS, 2)] + again)
    with SqliteStore(folder / "em.db") as store:
        assert verify(store).ok
        with pytest.raises(RoutineError, match="this run is over: ok"):
            resume_run(store, run_id)


def test_an_unharmed_run_is_journalled_whole(folder: Path) -> None:
    result = work(folder)
    with SqliteStore(folder / "em.db") as store:
        past = read_run(store, result["run_id"])
    assert past.events[0].kind == "run_started"
    assert past.events[-1].kind == "run_ended"
    announced = [step for step in past.steps if step.tool]
    assert len(announced) == STEPS // 2, "only what has an effect is announced"
    assert len(past.steps) == STEPS
    assert (past.status, past.restored.in_flight) == ("ok", set())


def simple(tmp_path: Path, steps: str) -> Path:
    (tmp_path / "routine.yaml").write_text(f"name: simple\nsteps:\n{steps}")
    return tmp_path


def test_a_prompt_waits_in_the_journal_until_it_is_answered(tmp_path: Path) -> None:
    called: list[int] = []
    folder = simple(
        tmp_path,
        "  - {id: a, type: tool.call, tool: act, save_as: x}\n"
        "  - {id: ask, type: prompt.user, save_as: ok,"
        " prompt: {message: Sure?, fields: [{name: sure, type: confirm}]}}\n"
        '  - {id: b, type: return, value: "{{ [x, ok.sure] }}"}\n',
    )
    tools = {"act": lambda: called.append(1) or 7}
    with Memory(tmp_path / "em.db") as memory:
        waiting = run_routine(folder, {}, tools, store=memory.store)
        assert waiting.status == "needs_input"
        assert resume_run(memory.store, waiting.run_id, tools).status == "needs_input"
        done = resume_run(memory.store, waiting.run_id, tools, answers={"ask": {"sure": True}})
        assert (done.status, done.output) == ("ok", [7, True])
    assert called == [1]


def test_each_item_of_a_loop_is_kept_by_itself(tmp_path: Path) -> None:
    folder = simple(
        tmp_path,
        '  - {id: a, type: tool.call, tool: act, for_each: "{{ xs }}", as: x, save_as: out,'
        ' args: {x: "{{ x }}"}, effect: read}\n'
        "  - {id: b, type: tool.call, tool: stop, effect: read}\n"
        '  - {id: c, type: return, value: "{{ out }}"}\n',
    )
    called: list[int] = []

    def act(x: int) -> int:
        called.append(x)
        return x * 10

    def stop() -> None:
        raise KeyboardInterrupt

    with SqliteStore(tmp_path / "em.db") as store:
        with pytest.raises(KeyboardInterrupt):
            run_routine(folder, {"xs": [1, 2, 3]}, {"act": act, "stop": stop}, store=store)
        (started,) = store.read(EventQuery(kinds=["run_started"]))
        run_id = started.stream.removeprefix("run/")
        result = resume_run(store, run_id, {"act": act, "stop": lambda: None})
    assert result.output == [10, 20, 30]
    assert sorted(called) == [1, 2, 3]


def test_an_idempotency_key_makes_an_effect_repeatable(tmp_path: Path) -> None:
    folder = simple(
        tmp_path,
        "  - {id: a, type: tool.call, tool: act, idempotency_key: order-1, save_as: x}\n"
        '  - {id: b, type: return, value: "{{ x }}"}\n',
    )

    def interrupted(idempotency_key: str) -> None:
        raise KeyboardInterrupt

    with SqliteStore(tmp_path / "em.db") as store:
        with pytest.raises(KeyboardInterrupt):
            run_routine(folder, {}, {"act": interrupted}, store=store)
        (started,) = store.read(EventQuery(kinds=["run_started"]))
        run_id = started.stream.removeprefix("run/")
        assert resume_run(store, run_id, {"act": lambda: 5}).status == "needs_input", "takes none"
        assert resume_run(store, run_id, {"act": lambda idempotency_key: 5}).output == 5


def test_a_redacted_result_of_a_read_is_read_again(tmp_path: Path) -> None:
    folder = simple(
        tmp_path,
        "  - {id: a, type: tool.call, tool: secret, effect: read, save_as: key}\n"
        "  - {id: b, type: tool.call, tool: stop, effect: read}\n"
        '  - {id: c, type: return, value: "{{ len(key) }}"}\n',
    )
    key = "sk-ant-api03-" + "Ab1" * 10

    def stop() -> None:
        raise KeyboardInterrupt

    with SqliteStore(tmp_path / "em.db") as store:
        with pytest.raises(KeyboardInterrupt):
            run_routine(folder, {}, {"secret": lambda: key, "stop": stop}, store=store)
        assert key not in repr(list(store.read(EventQuery())))
        (started,) = store.read(EventQuery(kinds=["run_started"]))
        run_id = started.stream.removeprefix("run/")
        result = resume_run(store, run_id, {"secret": lambda: key, "stop": lambda: None})
    assert result.output == len(key)


def test_a_changed_routine_an_unknown_run_and_a_second_worker_are_refused(tmp_path: Path) -> None:
    folder = simple(tmp_path, "  - {id: a, type: prompt.user, prompt: {message: Hm?}}\n")
    with SqliteStore(tmp_path / "em.db") as store:
        with pytest.raises(NotFound):
            resume_run(store, "none")
        waiting = run_routine(folder, {}, store=store)
        with pytest.raises(PositionConflict):
            Journal(store, waiting.run_id, pos=0).write([("run_ended", {"status": "ok"})])
        simple(tmp_path, "  - {id: other, type: return}\n")
        with pytest.raises(RoutineError, match="changed since"):
            resume_run(store, waiting.run_id)


def test_a_result_that_cannot_be_kept_is_told(tmp_path: Path) -> None:
    folder = simple(tmp_path, "  - {id: a, type: tool.call, tool: odd}\n")
    with SqliteStore(tmp_path / "em.db") as store:
        for odd in (object, lambda: float("nan"), lambda: "\ud800", lambda: b"bytes"):
            failure = run_routine(folder, {}, {"odd": odd}, store=store).failure
            assert failure is not None
            assert "can't be stored in the journal" in failure.message
        assert run_routine(folder, {}, {"odd": object}).status == "ok", "without a journal it may"


def test_the_journal_works_under_asyncio_too(tmp_path: Path) -> None:
    import asyncio

    folder = simple(
        tmp_path,
        "  - {id: a, type: tool.call, tool: act, save_as: x}\n"
        '  - {id: b, type: return, value: "{{ x }}"}\n',
    )

    async def act() -> int:
        return 3

    with SqliteStore(tmp_path / "em.db") as store:
        result = asyncio.run(arun_routine(folder, {}, {"act": act}, store=store))
        assert result.output == 3
        assert read_run(store, result.run_id).status == "ok"


def interrupted_once(tmp_path: Path, steps: str, tools: dict[str, Any], **given: Any) -> str:
    """Begin a run that is interrupted; its id."""
    folder = simple(tmp_path, steps)
    with SqliteStore(tmp_path / "em.db") as store:
        with pytest.raises(KeyboardInterrupt):
            run_routine(folder, given.pop("input_data", {}), tools, store=store, **given)
        (started,) = store.read(EventQuery(kinds=["run_started"]))
    return started.stream.removeprefix("run/")


def test_an_answer_about_one_attempt_says_nothing_of_the_next(tmp_path: Path) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    run_id = interrupted_once(tmp_path, "  - {id: a, type: tool.call, tool: pay}\n", {"pay": stop})
    with SqliteStore(tmp_path / "em.db") as store:
        assert resume_run(store, run_id, {"pay": stop}).status == "needs_input"
        with pytest.raises(KeyboardInterrupt):
            resume_run(store, run_id, {"pay": stop}, answers={"a?": {"happened": False}})
        assert resume_run(store, run_id, {"pay": stop}).status == "needs_input", "asked again"


def test_a_tool_that_says_it_writes_is_believed(tmp_path: Path) -> None:
    from em.runner.tools import ToolRegistry

    registry = ToolRegistry()

    @registry.tool(effect="write")
    def pay() -> None:
        raise KeyboardInterrupt

    steps = "  - {id: a, type: tool.call, tool: pay, effect: read}\n"
    run_id = interrupted_once(tmp_path, steps, registry)  # type: ignore[arg-type]
    with SqliteStore(tmp_path / "em.db") as store:
        assert resume_run(store, run_id, registry).status == "needs_input"


def test_a_secret_input_must_be_given_again(tmp_path: Path) -> None:
    token = "ghp_" + "a1B2" * 9
    seen: list[str] = []

    def stop(key: str) -> None:
        seen.append(key)
        if len(seen) == 1:
            raise KeyboardInterrupt

    steps = '  - {id: a, type: tool.call, tool: t, effect: read, args: {key: "{{ key }}"}}\n'
    given = {"key": token}
    run_id = interrupted_once(tmp_path, steps, {"t": stop}, input_data=given)
    with SqliteStore(tmp_path / "em.db") as store:
        with pytest.raises(RoutineError, match="was a secret"):
            resume_run(store, run_id, {"t": stop})
        assert resume_run(store, run_id, {"t": stop}, input_data=given).status == "ok"
    assert seen == [token, token]


def test_an_idempotency_key_reaches_the_tool_and_the_journal(tmp_path: Path) -> None:
    folder = simple(
        tmp_path,
        '  - {id: a, type: tool.call, tool: pay, idempotency_key: "order-{{ n }}", save_as: x}\n'
        '  - {id: b, type: return, value: "{{ x }}"}\n',
    )
    with SqliteStore(tmp_path / "em.db") as store:
        tools = {"pay": lambda idempotency_key: idempotency_key}
        assert run_routine(folder, {"n": 7}, tools, store=store).output == "order-7"
        (intent,) = store.read(EventQuery(kinds=["step_started"]))
        assert intent.body is not None
        assert intent.body["key"] == "order-7"


def test_a_straight_run_and_a_resumed_one_see_the_same_values(tmp_path: Path) -> None:
    from decimal import Decimal

    folder = simple(
        tmp_path,
        "  - {id: a, type: tool.call, tool: t, save_as: x}\n"
        '  - {id: b, type: return, value: "{{ x }}"}\n',
    )
    with SqliteStore(tmp_path / "em.db") as store:
        assert run_routine(folder, {}, {"t": lambda: Decimal(10)}, store=store).output == "10"


SECRET_PROMPT = """
  - {id: ask, type: prompt.user, save_as: login, prompt: {message: Log in, fields: [
      {name: user}, {name: word, type: secret}]}}
  - {id: look, type: tool.call, tool: look, effect: read, args: {word: "{{ login.word }}"},
     save_as: x}
  - {id: act, type: tool.call, tool: act, effect: write, args: {word: "{{ login.word }}"}}
  - {id: more, type: prompt.user, save_as: ok, prompt: {message: "Go on?", fields: [{name: ok}]}}
  - {id: end, type: return, value: "{{ x }}"}
"""


def test_the_answer_to_a_secret_field_is_never_written_and_asked_again(tmp_path: Path) -> None:
    word = "correct horse battery"
    seen: list[str] = []
    tools = {
        "look": lambda word: seen.append("look") or f"<{word}>",
        "act": lambda word: seen.append("act") or "done",
    }
    folder = simple(tmp_path, SECRET_PROMPT)
    with SqliteStore(tmp_path / "em.db") as store:
        answer = {"ask": {"user": "ana", "word": word}}
        waiting = run_routine(folder, {}, tools, answers=answer, store=store)
        assert waiting.pending_prompt is not None
        assert waiting.pending_prompt.step_id == "more"
        asked = resume_run(store, waiting.run_id, tools, answers={"more": {"ok": "y"}})
        assert asked.pending_prompt is not None
        assert asked.pending_prompt.step_id == "ask"
        again = {"ask": {"word": word}}
        done = resume_run(store, waiting.run_id, tools, answers=again)
        assert (done.status, done.output) == ("ok", f"<{word}>")
        assert verify(store).ok
    assert seen == ["look", "act", "look"], "only the read whose result held it is made again"
    for file in tmp_path.glob("em.db*"):
        assert word.encode() not in file.read_bytes()


def test_answers_that_held_a_known_secret_can_be_given_again(tmp_path: Path) -> None:
    token = "ghp_" + "a1B2" * 9
    steps = (
        "  - {id: ask, type: prompt.user, save_as: a, prompt: {message: m, fields: [{name: x}]}}\n"
        "  - {id: more, type: prompt.user, prompt: {message: m, fields: [{name: x}]}}\n"
        '  - {id: end, type: return, value: "{{ a.x }}"}\n'
    )
    folder = simple(tmp_path, steps)
    with SqliteStore(tmp_path / "em.db") as store:
        run_id = run_routine(folder, answers={"ask": {"x": token}}, store=store).run_id
        more = {"more": {"x": "y"}}
        with pytest.raises(RoutineError, match="was a secret"):
            resume_run(store, run_id, answers=more)
        given = {"ask": {"x": token}, **more}
        assert resume_run(store, run_id, answers=given).output == token


class _Counting(SqliteStore):
    """A store that counts the events of its commits."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.sizes: list[int] = []

    def commit(self, commit: Any) -> Any:
        self.sizes.append(len(commit.events))
        return super().commit(commit)


def side_by_side(journal: Journal, bodies: list[Any]) -> list[BaseException | None]:
    """Write notes from a thread each."""
    problems: list[BaseException | None] = [None] * len(bodies)

    def write(number: int) -> None:
        try:
            journal.write([("step_done", bodies[number])])
        except Exception as error:  # noqa: BLE001 - the test looks at it
            problems[number] = error

    threads = [threading.Thread(target=write, args=(n,)) for n in range(len(bodies))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    return problems


def test_steps_that_end_side_by_side_are_all_stored(tmp_path: Path) -> None:
    with _Counting(tmp_path / "em.db") as store:
        bodies = [{"step": f"s{n}", "result": n} for n in range(9)]
        assert side_by_side(Journal(store, "r"), bodies) == [None] * 9
        told = [event.body for event in store.read(EventQuery(stream="run/r"))]
        assert sorted(body["step"] for body in told if body) == [f"s{n}" for n in range(9)]
        assert verify(store).ok


def test_a_result_that_cannot_be_stored_stops_its_own_step_only(tmp_path: Path) -> None:
    with _Counting(tmp_path / "em.db") as store:
        bodies: list[Any] = [{"step": f"s{n}", "result": n} for n in range(4)]
        bodies[2] = {"step": "s2", "result": "\ud800"}
        problems = side_by_side(Journal(store, "r"), bodies)
        assert [type(problem).__name__ for problem in problems] == [
            "NoneType", "NoneType", "BadBody", "NoneType",
        ]  # fmt: skip
        assert len(list(store.read(EventQuery(stream="run/r")))) == 3


def test_a_worker_that_was_overtaken_stops_every_step_that_waits(tmp_path: Path) -> None:
    with _Counting(tmp_path / "em.db") as store:
        bodies = [{"step": f"s{n}", "result": n} for n in range(3)]
        problems = side_by_side(Journal(store, "r", pos=7), bodies)
        assert {type(problem).__name__ for problem in problems} == {"RunBusy"}
        assert not list(store.read(EventQuery(stream="run/r")))


@pytest.mark.parametrize("steps", [3, 30])
def test_a_step_with_an_effect_is_one_row_and_one_commit(tmp_path: Path, steps: int) -> None:
    (tmp_path / "routine.yaml").write_text(
        "name: many\nsteps:\n"
        + "".join(
            f'  - {{id: s{n}, type: tool.call, tool: act, args: {{x: "{{{{ x{n} }}}}"}},'
            f" save_as: x{n + 1}}}\n"
            for n in range(steps)
        )
    )
    with _Counting(tmp_path / "em.db") as store:
        done = run_routine(tmp_path, {"x0": 0}, {"act": lambda x: x + 1}, store=store)
        assert done.status == "ok"
        kinds = [event.kind for event in store.read(EventQuery(stream=f"run/{done.run_id}"))]
        assert kinds == ["run_started", "step_started", *["step_done"] * steps, "run_ended"]
        assert store.sizes == [2, *[1] * (steps - 1), 2]
