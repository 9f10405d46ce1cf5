"""Workflows in the queue: as they were written when they were queued, within their limits."""

from pathlib import Path

import pytest
from tests.work.conftest import SETTINGS, Workplace, kill

from em import Memory
from em.errors import InputError, InvalidWorkflow, NotFound, UsageError

pytestmark = pytest.mark.timeout(1_800)  # for what hangs: workers wait as long as work is done


def five(tool: str) -> str:
    """Five steps, each with an effect."""
    key = ', idempotency_key: "{{ params.n }}-%d"' if tool == "keyed" else ""
    return "".join(
        f'      - {{name: s{step}, tool: {tool}, inputs: {{n: "{{{{ params.n }}}}", step: {step}}}'
        f"{key % step if key else ''}}}\n"
        for step in range(1, 6)
    )


WORKFLOWS = f"""
workflows:
  five:
    params: {{n: {{type: integer}}}}
    steps:
{five("keyed")}
  plain:
    params: {{n: {{type: integer}}}}
    steps:
{five("plain")}"""
WORKFLOWS += """
  busy:
    params: {n: {type: integer}}
    steps:
      - {name: a, tool: busy, inputs: {n: "{{ params.n }}"}}
  asking:
    params: [topic]
    steps:
      - {name: a, tool: model_call, inputs: {provider: local, prompt: "About {{ params.topic }}"}}
  breaking:
    params: {n: {type: integer}}
    steps:
      - {name: a, tool: plain, inputs: {n: "{{ params.n }}", step: 1}}
      - {name: b, tool: not_yet, effect: read, inputs: {n: "{{ params.n }}"}}
  gated:
    params: {n: {type: integer}}
    steps:
      - {name: a, tool: busy, gate: true, inputs: {n: "{{ params.n }}"}}
"""
NOT_YET = """
def not_yet(n: int) -> int:
    if not os.path.exists("ready"):
        raise ValueError("not yet")
    return n
"""
RUNS = 30


def settings(more: str = "") -> None:
    Path("em.yaml").write_text((more or SETTINGS) + WORKFLOWS)
    tools = Path("tools.py")
    if "not_yet" not in tools.read_text():
        tools.write_text(tools.read_text() + NOT_YET)


def all_effects(runs: int) -> dict[str, int]:
    return {f"{n}-{step}": 1 for n in range(runs) for step in range(1, 6)}


def test_killed_in_between_all_runs_complete_and_no_keyed_effect_happens_twice(
    workplace: Workplace,
) -> None:
    settings()
    with workplace.queue() as queue:
        jobs = queue.add_workflow_runs("five", [{"n": n} for n in range(RUNS)], chunk=3)
    # The workers have what was queued, not what the file says now.
    Path("em.yaml").write_text(SETTINGS)
    first = workplace.worker(slow=0.02)
    workplace.until(lambda: workplace.effects().total() > 10)
    second = workplace.worker("--drain", slow=0.02)
    workplace.until(lambda: workplace.effects().total() > 30)
    kill(first)
    workplace.said_by(second)
    assert workplace.effects() == all_effects(RUNS)
    with workplace.queue() as queue, Memory(workplace.db) as memory:
        report = queue.reports(jobs)
        assert (report.done, report.waiting, report.failed) == (RUNS, {}, {})
        assert {memory.workflows().result(run).status for run in queue.runs(jobs)} == {"ok"}


def test_without_keys_they_complete_or_ask_and_none_is_silently_repeated(
    workplace: Workplace,
) -> None:
    settings()
    with workplace.queue() as queue:
        jobs = queue.add_workflow_runs("plain", [{"n": n} for n in range(RUNS)], chunk=3)
    first = workplace.worker(slow=0.05)
    workplace.until(lambda: workplace.effects().total() > 10)
    kill(first)
    workplace.drain()
    assert set(workplace.effects().values()) == {1}
    with workplace.queue() as queue:
        report = queue.reports(jobs)
        assert report.failed == {}
        assert report.waiting
        assert report.done + len(report.waiting) == RUNS
        for run, how in report.waiting.items():
            assert how == f"em resume {run}"


def most_at_a_time(folder: Path) -> int:
    now = most = 0
    for sign in (folder / "busy.txt").read_text().split():
        now += 1 if sign == "+" else -1
        most = max(most, now)
    return most


def test_no_more_runs_of_a_workflow_at_a_time_than_its_limit_over_all_workers(
    workplace: Workplace,
) -> None:
    settings("work: {lease: 60, limits: {workflows: {busy: 2}}}\n")
    with workplace.queue() as queue:
        jobs = queue.add_workflow_runs("busy", [{"n": n} for n in range(12)])
        assert {queue.job(job).queue for job in jobs} == {"workflow:busy"}
        with pytest.raises(UsageError, match="a queue of its own"):
            queue.add_workflow_runs("busy", [{"n": 1}], queue="mine")
    workers = [workplace.worker("--drain") for _ in range(2)]
    for worker in workers:
        workplace.said_by(worker)
        assert worker.returncode == 0
    assert most_at_a_time(workplace.folder) == 2


def test_a_failed_workflow_goes_on_at_the_step_that_failed(on_sqlite: Workplace) -> None:
    settings()
    with on_sqlite.queue() as queue:
        (job,) = queue.add_workflow_runs("breaking", [{"n": 7}])
    on_sqlite.drain()
    with on_sqlite.queue() as queue:
        report = queue.reports([job])
        assert list(report.failed) == queue.runs([job])
        assert "not yet" in next(iter(report.failed.values()))
        (on_sqlite.folder / "ready").touch()
        again = queue.retry(job)
    on_sqlite.drain()
    with on_sqlite.queue() as queue:
        assert queue.job(again).state == "done"
    assert on_sqlite.effects() == {"7-1": 1}


def test_a_gate_waits_for_a_person(on_sqlite: Workplace) -> None:
    settings()
    with on_sqlite.queue() as queue:
        (job,) = queue.add_workflow_runs("gated", [{"n": 7}])
    on_sqlite.drain()
    with on_sqlite.queue() as queue:
        assert queue.job(job).state == "waiting"
        assert [view.id for view in queue.jobs(state="waiting")] == [job]


def test_what_can_not_run_is_refused_before_anything_is_queued(on_sqlite: Workplace) -> None:
    settings()
    with on_sqlite.queue() as queue:
        with pytest.raises(NotFound, match="fiver") as caught:
            queue.add_workflow_runs("fiver", [{"n": 1}])
        assert "five" in caught.value.fix
        with pytest.raises(InputError, match="'m'"):
            queue.add_workflow_runs("five", [{"n": 1}, {"m": 1}])
        with pytest.raises(InputError, match="missing"):
            queue.add_workflow_runs("five")
        with pytest.raises(InputError, match="looks like a secret"):
            queue.add_workflow_runs("asking", [{"topic": "ghp_" + "a1B2c3D4" * 5}])
        Path("wrong.yaml").write_text(
            "workflows: {w: {steps: [{name: a, tool: busy, memory: {needs: [b]}},"
            " {name: b, tool: busy}]}}"
        )
        with pytest.raises(InvalidWorkflow):
            queue.add_workflow_runs("w", file="wrong.yaml")
        assert queue.jobs() == []
