"""The bench `learn` can tell right from wrong; its phones and pages are made up here."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bench.learn import miniwob, speed, telecom, workloads
from bench.learn.learner import Learner, Learnt
from bench.learn.report import general
from bench.right.verdict import Ended

OK, FAILED = Ended("ok"), Ended("failed", "a guard")


# The learner


def trace_of_refund(order: str) -> dict[str, Any]:
    record = {"order_id": order, "status": "delivered", "refund_key": f"key-{order}-4471902"}
    args = {"order_id": order, "refund_key": f"key-{order}-4471902"}
    call = {"type": "tool_call", "tool": "get_order", "args": {"order_id": order}}
    return {
        "version": "1",
        "outcome": "success",
        "mission": {"goal": "Refund", "input_summary": {"order_id": order}},
        "events": [
            {"type": "message", "role": "user", "text": f"Please refund order #{order}"},
            {**call, "result": record, "effect": "read"},
            {"type": "tool_call", "tool": "refund", "args": args, "result": {}, "effect": "write"},
        ],
        "final_output": {},
    }


def test_a_learner_learns_from_traces_and_runs_what_was_learnt(tmp_path: Path) -> None:
    made: list[Any] = []

    def get_order(order_id: str) -> Any:
        key = f"key-{order_id}-4471902"
        return {"order_id": order_id, "status": "delivered", "refund_key": key}

    tools = {"get_order": get_order, "refund": lambda **args: made.append(args) or {}}
    learner = Learner(tmp_path)
    learner.record({"one": trace_of_refund("W4410021")})
    learnt = learner.learn("refund", ["one"])
    assert isinstance(learnt, Learnt)
    assert learnt.run("", tools, {"order_id": "W4410021"}).status == "ok"
    assert len(made) == 1
    ended = learnt.run("What is the weather like?", tools)
    assert ended.status != "ok"
    assert ended.said
    assert len(made) == 1
    assert isinstance(learner.learn("other", []), str)
    learner.close()


# Telecom


def fault(*fixes: tuple[str, dict[str, Any]], gold: str = "") -> telecom.Task:
    names = [gold] if gold else [tool for tool, _ in fixes]
    criteria = SimpleNamespace(actions=[SimpleNamespace(name=name) for name in names])
    spec = SimpleNamespace(evaluation_criteria=criteria)
    return telecom.Task("task", "mms_issue", ("fault",), "ticket", spec, [*fixes])


SIM = ("reseat_sim_card", dict[str, Any]())
DATA = ("toggle_data", dict[str, Any]())
HANDED = (telecom.TRANSFER, {"summary": "I can't"})


@pytest.mark.parametrize(
    ("asked", "holds", "ended", "verdict"),
    [
        ([SIM, DATA], True, OK, "right"),
        ([DATA, SIM], True, OK, "right"),
        ([SIM, DATA, DATA], True, OK, "wrong"),
        ([("toggle_wifi", {})], False, FAILED, "wrong"),
        ([], False, OK, "wrong"),
        ([SIM], False, FAILED, "after fixes"),
        ([HANDED], False, OK, "handed over"),
        ([], False, FAILED, "handed over"),
    ],
)
def test_a_phone_is_right_if_the_assertions_hold(
    asked: list[Any], holds: bool, ended: Ended, verdict: str
) -> None:
    phone: Any = SimpleNamespace(asked=asked, is_as_asserted=lambda: holds)
    assert telecom.judge(fault(SIM, DATA), phone, ended).kind == verdict


def test_a_fault_that_nobody_can_fix_is_handed_over() -> None:
    unfixable = fault(SIM, gold=telecom.TRANSFER)
    for asked, ended, verdict in (
        ([], FAILED, "right"),
        ([SIM, HANDED], OK, "right"),
        ([], OK, "wrong"),
        ([DATA], FAILED, "wrong"),
    ):
        phone: Any = SimpleNamespace(asked=asked, is_as_asserted=lambda: True)
        assert telecom.judge(unfixable, phone, ended).kind == verdict


# MiniWoB


@pytest.mark.parametrize(
    ("reward", "acted", "ended", "verdict"),
    [
        (1.0, True, OK, "right"),
        (-1.0, True, OK, "negative"),
        (0.5, True, OK, "negative"),
        (None, True, OK, "unfinished"),
        (None, True, FAILED, "unfinished"),
        (None, False, OK, "unfinished"),
        (None, False, FAILED, "refused"),
        (None, False, Ended("needs_input"), "asked"),
    ],
)
def test_an_episode_is_scored_by_its_reward(
    reward: float | None, acted: bool, ended: Ended, verdict: str
) -> None:
    page: Any = SimpleNamespace(reward=reward, has_acted=acted, calls=[])
    assert miniwob.judge(page, ended).kind == verdict


def test_there_are_twenty_pages() -> None:
    assert len(miniwob.PAGES) == 20


# Speed, and the command


@pytest.mark.parametrize("left_out", [(), ("get_customer", "get_depot", "get_policy")])
def test_the_made_up_shop_needs_ten_calls_and_a_hand_written_routine_makes_those_named(
    tmp_path: Path, left_out: tuple[str, ...]
) -> None:
    from em.runner.engine import run_routine

    shop = speed.Shop(7)
    calls = [event for event in shop.trace()["events"] if event["type"] == "tool_call"]
    assert len(calls) == 10
    tools = {event["tool"] for event in calls} - {*left_out}
    (tmp_path / "routine.yaml").write_text(speed.hand_written(tools))
    given = {"email": shop.email, "order_id": shop.order_id, "reason": shop.reason}
    ran = run_routine(tmp_path, given, shop.tools())
    assert ran.status == "ok"
    assert ran.output == shop.records["refund_order"]
    assert len(ran.steps) == len(tools) + 1


@pytest.mark.parametrize(
    ("variable", "part", "command"),
    [
        ("EM_TAU_BENCH", "typed", "git clone https://github.com/sierra-research/tau-bench"),
        ("EM_TAU2_BENCH", "telecom", "git clone https://github.com/sierra-research/tau2-bench"),
        ("EM_MINIWOB", "miniwob", "miniwob"),
    ],
)
def test_a_part_says_how_to_get_what_is_missing(
    variable: str,
    part: str,
    command: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("EM_TAU_BENCH", raising=False)
    monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("shutil.which", lambda _name: "chromium")
    figures: Iterator[Any] = workloads.figures(workloads.Options(parts=[part]))
    assert [*figures] == []
    said = capsys.readouterr().out
    assert command in said
    assert "passed over" in said


def test_options_are_read_from_the_command() -> None:
    words = "--part typed --part time --size 5 --limit 3 --verbose --draws 2".split()
    options = workloads.read_options(words)
    assert options.parts == ["typed", "time"]
    assert options.sizes == ["5"]
    assert (options.limit, options.verbose, options.draws) == (3, True, 2)


def test_equal_reasons_are_counted_as_one() -> None:
    one = general('asked: order "#W1" of W12 is at 3.5, not "a \\" b"')
    assert one == general('asked: order "#W2" of W9 is at 14, not "c"')
