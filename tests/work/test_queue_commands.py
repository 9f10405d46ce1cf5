"""The commands of queued work, as a user types them."""

import json
from pathlib import Path

import pytest
from tests.cli import em_command
from tests.cli.em_command import on_terminal
from tests.forks import QUEUE, Ran
from tests.work.conftest import Workplace
from tests.work.test_workflows_queued import settings

from em import Memory

pytestmark = pytest.mark.timeout(1_800)  # for what hangs: workers wait as long as work is done


def em(*args: str, stdin: str = "") -> Ran:
    return em_command.em(*args, stdin=stdin, loaded=QUEUE)


def test_a_workflow_is_queued_done_and_looked_at(on_sqlite: Workplace) -> None:
    settings()
    db = ("--db", on_sqlite.db)
    queued = em("workflow", "enqueue", "busy", "-p", "n=3", *db)
    assert queued.code == 0, queued.err
    assert "no worker is running: start `em worker`" in queued.err
    job = queued.out.strip()
    assert "queued" in em("queue", "list", *db).out
    on_sqlite.drain()
    listed = em("queue", "list", *db)
    assert "1 done" in listed.out
    assert "workflow busy" in listed.out
    shown = em("queue", "show", job, "--json", *db).json
    assert shown["job"]["state"] == "done"
    assert shown["what"]["items"][0]["input"] == {"n": 3}
    assert em("queue", "clear", "--older-than", "0d", "--json", *db).json == {"dropped": 1}
    assert em("queue", "list", "--json", *db).json == {"jobs": [], "workers": {}}


def test_lines_of_a_file_are_runs_and_waiting_tells_what_became_of_them(
    on_sqlite: Workplace,
) -> None:
    settings()
    Path("runs.jsonl").write_text("".join(json.dumps({"n": n}) + "\n" for n in range(8)) + "\n")
    worker = on_sqlite.worker()
    ran = em(
        "workflow", "enqueue", "five", "--each", "runs.jsonl", "--chunk", "4", "--wait",
        "--db", on_sqlite.db,
    )  # fmt: skip
    assert ran.code == 0, ran.err
    assert ran.out == "8 done\n"
    failed = em(
        "queue", "run", "failing", "--each", "runs.jsonl", "--chunk", "8", "--wait", "--json",
        "--db", on_sqlite.db,
    )  # fmt: skip
    assert failed.code == 1
    assert failed.json["done"] == 0
    assert len(failed.json["failed"]) == 8
    (job,) = em("queue", "list", "--state", "failed", "--json", "--db", on_sqlite.db).json["jobs"]
    shown = em("queue", "show", job["id"], "--db", on_sqlite.db)
    assert "3 is odd" in shown.out
    assert f"em queue retry {job['id']}" in shown.err
    again = em("queue", "retry", job["id"], "--wait", "--db", on_sqlite.db)
    assert again.code == 1
    assert again.err.count("failed:") == 8
    worker.terminate()
    on_sqlite.said_by(worker)
    assert worker.returncode == 0


def test_cancelling(on_sqlite: Workplace) -> None:
    db = ("--db", on_sqlite.db)
    queued = em("queue", "run", "plain_five", "--json", "--input", "-", *db, stdin='{"n": 1}')
    (job,) = queued.json["jobs"]
    assert len(queued.json["runs"]) == 1
    assert em("queue", "cancel", job, *db).out == "cancelled: 1 job\n"
    twice = em("queue", "cancel", job, *db)
    assert twice.code == 1
    assert "this job has ended: cancelled" in twice.err
    assert em("queue", "retry", job, *db).code == 0


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["queue", "show", "nothing"], 1, "there is no job 'nothing'"),
        (["queue", "run", "unknown"], 1, "unknown"),
        (["queue", "run", "plain_five", "--each", "empty.jsonl"], 2, "expected at least one line"),
        (["queue", "run", "plain_five", "--each", "bad.jsonl"], 2, "bad.jsonl:2"),
        (["queue", "run", "plain_five", "--each", "e", "--input", "i"], 2, "either --input"),
        (["queue", "clear", "--older-than", "soon"], 2, "--older-than must be a duration"),
        (["workflow", "enqueue", "bsy", "-p", "n=1"], 1, "did you mean 'busy'?"),
        (["workflow", "enqueue", "busy", "-p", "n"], 2, "expected NAME=VALUE"),
        (["workflow", "enqueue", "busy", "-p", "n=x"], 2, "n"),
        (["state", "checkpoint", "ada", "--distributed"], 2, "--distributed needs --all"),
        (["compile", "--distributed"], 2, "--all"),
        (["compile", "--all", "--name", "x"], 2, "--all takes no options of a single routine"),
        (["worker", "--queue", "", "--drain"], 2, "queue"),
    ],
)
def test_what_is_wrong_is_told(on_sqlite: Workplace, args: list[str], code: int, said: str) -> None:
    settings()
    Path("empty.jsonl").touch()
    Path("bad.jsonl").write_text('{"n": 1}\n[]\n')
    ran = em(*args, "--db", on_sqlite.db)
    assert ran.code == code, ran.err
    assert said in ran.err


def test_a_log_in_memory_has_no_queue() -> None:
    ran = em("queue", "list", "--db", ":memory:")
    assert ran.code == 2
    assert "only in memory" in ran.err


def test_all_subjects_are_checkpointed_by_workers(on_sqlite: Workplace) -> None:
    with Memory(on_sqlite.db) as memory:
        for number in range(30):
            memory.observe(f"user-{number}", {"city": f"c{number}"}, type="address")
    worker = on_sqlite.worker()
    ran = em("state", "checkpoint", "--all", "--distributed", "--json", "--db", on_sqlite.db)
    assert ran.code == 0, ran.err
    assert ran.json == {"done": 30, "waiting": {}, "failed": {}}
    with Memory(on_sqlite.db) as memory:
        assert memory.state("user-7").version == 1
    worker.terminate()
    on_sqlite.said_by(worker)
    assert worker.returncode == 0


def test_all_tasks_are_compiled_here_or_by_workers(on_sqlite: Workplace) -> None:
    def trace(goal: str, tool: str) -> dict[str, object]:
        events = [{"type": "tool_call", "seq": 0, "tool": tool, "args": {"a": 1}, "result": 2}]
        return {
            "version": "1", "mission": {"goal": goal}, "events": events, "final_output": 2,
            "outcome": "success",
        }  # fmt: skip

    with Memory(on_sqlite.db) as memory:
        for number in range(3):
            memory.add_trace(trace(f"do task {number}", "get_it"))
        memory.add_trace({**trace("a failure", "get_it"), "outcome": "failure"})
        unlabelled = memory.add_trace({**trace("who knows", "get_it"), "outcome": "unknown"})
    here = em("compile", "--all", "--json", "--db", on_sqlite.db)
    assert here.code == 0, here.err
    assert sorted(here.json["kept"]) == ["do task 0", "do task 1", "do task 2"]
    worker = on_sqlite.worker()
    there = em("compile", "--all", "--distributed", "--json", "--db", on_sqlite.db)
    assert there.json == {"done": 3, "waiting": {}, "failed": {}}
    there = em(
        "compile", "--all", "--distributed", "--allow-unlabelled", "--json", "--db", on_sqlite.db
    )
    assert there.json == {"done": 4, "waiting": {}, "failed": {}}
    worker.terminate()
    on_sqlite.said_by(worker)
    assert worker.returncode == 0
    with on_sqlite.queue() as queue:
        jobs = queue.add_compilations({"who knows": [unlabelled]})
    on_sqlite.drain()
    with on_sqlite.queue() as queue:
        failed = queue.reports(jobs).failed
    assert "does not say whether it succeeded" in failed["who knows"]


def test_waiting_shows_a_bar_on_a_terminal(on_sqlite: Workplace) -> None:
    settings()
    worker = on_sqlite.worker()
    shown = on_terminal(
        "queue", "run", "busy_one", "--input", "n.json", "--wait", "--db", on_sqlite.db
    )
    assert "can't be read" in shown
    Path("n.json").write_text('{"n": 1}')
    shown = on_terminal(
        "queue", "run", "busy_one", "--input", "n.json", "--wait", "--db", on_sqlite.db
    )
    assert "1 done" in shown
    worker.terminate()
    on_sqlite.said_by(worker)
    assert worker.returncode == 0


def test_the_choices_of_a_list_are_those_of_jobs() -> None:
    from typing import get_args

    from em.cli.queue import KINDS, STATES
    from em.work.job import Kind, State

    assert get_args(State) == STATES
    assert get_args(Kind) == KINDS


def test_waiting_jobs_are_listed_behind_any_number_of_done_ones(on_sqlite: Workplace) -> None:
    settings()
    db = ("--db", on_sqlite.db)
    (waits,) = em("workflow", "enqueue", "gated", "-p", "n=1", "--json", *db).json["jobs"]
    on_sqlite.drain()
    with on_sqlite.queue() as queue:
        queue.add_runs("busy_one", [{"n": n} for n in range(3)])
    on_sqlite.drain()
    listed = em("queue", "list", "--state", "waiting", "--limit", "2", "--json", *db).json["jobs"]
    assert [view["id"] for view in listed] == [waits]
    refused = em("queue", "cancel", waits, *db)
    with on_sqlite.queue() as queue:
        (run,) = queue.runs([waits])
    assert "this job has ended, and its run waits for an answer" in refused.err
    assert f"em runs cancel {run}" in refused.err
    done = em("queue", "list", "--state", "done", "--limit", "9", "--json", *db).json["jobs"]
    assert len(done) == 3
