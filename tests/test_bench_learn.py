"""The bench `learn` can tell right from wrong; its shops, phones and pages are made up here."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bench.learn import attacks, bfcl, miniwob, speed, telecom, workloads
from bench.learn.learner import Learner, Learnt, Material
from bench.learn.report import general
from bench.learn.retail import School
from bench.learn.shop import Shop, Task
from bench.right.recording import recording_of
from bench.right.verdict import Ended
from bench.right.world import Domain, ToolError, World

OK, FAILED = Ended("ok"), Ended("failed", "a guard")


# Retail: kinds, sizes, verdicts and attacks


class Cancel:
    @staticmethod
    def invoke(data: Mapping[str, Any], order_id: str, reason: str) -> str:
        order = data["orders"][order_id]
        if order["status"] != "pending":
            return "Error: the order is not pending"
        order["status"] = f"cancelled: {reason}"
        return json.dumps(order)


class Return:
    @staticmethod
    def invoke(
        data: Mapping[str, Any], order_id: str, item_ids: list[str], payment_method_id: str
    ) -> str:
        data["orders"][order_id]["status"] = f"returned {item_ids} to {payment_method_id}"
        return json.dumps(data["orders"][order_id])


class Look:
    @staticmethod
    def invoke(data: Mapping[str, Any], order_id: str) -> str:
        return json.dumps(data["orders"][order_id])


def action(name: str, **kwargs: Any) -> SimpleNamespace:
    return SimpleNamespace(name=name, kwargs=kwargs)


def task(instruction: str, *actions: SimpleNamespace) -> SimpleNamespace:
    return SimpleNamespace(instruction=instruction, user_id="ann", actions=[*actions])


CANCEL_0 = action("cancel_pending_order", order_id="W0", reason="too late")
CANCEL_1 = action("cancel_pending_order", order_id="W1", reason="too late")
CANCEL_2 = action("cancel_pending_order", order_id="W2", reason="too late")
CANCEL_9 = action("cancel_pending_order", order_id="W9", reason="too late")
RETURN_8 = action(
    "return_delivered_order_items", order_id="W8", item_ids=["i8"], payment_method_id="card_1"
)


@pytest.fixture
def of() -> Domain:
    def order(number: int, status: str, user: str = "ann") -> dict[str, Any]:
        items = [{"item_id": f"i{number}", "product_id": "p1", "name": "Lamp"}]
        return {"status": status, "user_id": user, "items": items}

    orders = {f"W{number}": order(number, "pending") for number in range(5)}
    orders |= {"W7": order(7, "pending", "bob"), "W8": order(8, "delivered")}
    orders |= {"W9": order(9, "processed"), "W6": order(6, "delivered", "bob")}
    users = {
        name: {"email": f"{name}@x", "address": {"zip": zip_}, "payment_methods": {card: {}}}
        for name, zip_, card in (("ann", "10001", "card_1"), ("bob", "20002", "card_2"))
    }
    tasks = [
        task("Cancel W1, I'm ann@x: too late.", CANCEL_1),
        task("I'm ann@x. Return the Lamp of W8 to card_1. Cancel W1: too late", RETURN_8, CANCEL_1),
        task("Cancel W0, I'm ann@x: too late.", CANCEL_0),
        task("I'm ann@x, cancel W9: too late", CANCEL_9),
    ]
    tools = {
        "cancel_pending_order": Cancel,
        "return_delivered_order_items": Return,
        "get_order_details": Look,
    }
    return Domain("retail", tools, {"orders": orders, "users": users}, {"train": tasks})


def run_of(name: str, instruction: str, *actions: SimpleNamespace) -> Any:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Hello"}]
    for number, one in enumerate(actions):
        function = {"name": one.name, "arguments": json.dumps(one.kwargs)}
        asked = {"id": f"c{number}", "type": "function", "function": function}
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [asked]},
            {"role": "tool", "tool_call_id": f"c{number}", "content": '{"ok": true}'},
        ]
    chat = {"task_id": 0, "reward": 1.0, "instruction": instruction, "messages": messages}
    return recording_of(name, json.dumps(chat).encode())


@pytest.fixture
def shop(of: Domain) -> Shop:
    runs = [
        run_of("first", "Cancel W0, please", CANCEL_0),
        run_of("second", "Cancel W2, please", CANCEL_2),
        run_of("third", "Cancel W0 and W2, please", CANCEL_0, CANCEL_2),
        run_of("fourth", "Return the lamp of W8", RETURN_8),
    ]
    return Shop(of, runs)


def test_a_tool_that_is_called_twice_makes_no_other_kind(shop: Shop) -> None:
    assert {kind: len(runs) for kind, runs in shop.runs.items()} == {
        ("cancel_pending_order",): 3,
        ("return_delivered_order_items",): 1,
    }


def test_a_larger_size_has_the_runs_of_a_smaller_one(shop: Shop) -> None:
    kind = ("cancel_pending_order",)
    sizes = [set(shop.material(kind, size).own) for size in (1, 2, None)]
    assert [len(one) for one in sizes] == [1, 2, 3]
    assert sizes[0] < sizes[1] < sizes[2]
    assert sizes[2] <= shop.drawn(None).keys()


def test_a_kind_without_runs_is_learnt_from_its_parts(shop: Shop) -> None:
    material = shop.material(("cancel_pending_order", "return_delivered_order_items"), 1)
    assert not material.own
    assert len(material.parts) == 2
    assert not shop.material(("cancel_pending_order",), 1).parts


def test_a_task_that_was_learnt_is_not_scored(shop: Shop) -> None:
    # The third task leads to the database of the first run, whatever its words are.
    assert [one.name for one in shop.tasks(None)] == ["train:0", "train:1", "train:3"]
    assert len(shop.tasks(1)) == 1


def test_a_traces_request_is_the_instruction_unless_asked_otherwise(of: Domain) -> None:
    runs = [run_of("first", "Cancel W0, please", CANCEL_0)]
    for words, expected in (("instruction", "Cancel W0, please"), ("said", "Hello")):
        trace = Shop(of, runs, words).drawn(None)["first"]
        (said,) = (event for event in trace.events if getattr(event, "role", "") == "user")
        assert said.text == expected
        assert len(trace.calls) == 1


class Scripted(Learnt):
    """What was learnt does as it is told."""

    def __init__(self, does: Callable[[Mapping[str, Any]], None], ended: Ended = OK) -> None:
        self._does, self._ended = does, ended

    def run(self, request: str, tools: Mapping[str, Callable[..., Any]]) -> Ended:
        try:
            self._does(tools)
        except ToolError as error:
            return Ended("failed", str(error))
        return self._ended


def acting(*actions: SimpleNamespace) -> Callable[[Mapping[str, Any]], None]:
    def does(tools: Mapping[str, Any]) -> None:
        for one in actions:
            tools[one.name](**one.kwargs)

    return does


class Schooled(School):
    def __init__(self, shop: Shop, learnt: Learnt | str) -> None:
        self.shop, self._scripted = shop, learnt

    def learnt(self, task: Task, size: str) -> Learnt | str:
        return self._scripted


@pytest.mark.parametrize(
    ("number", "learnt", "verdict"),
    [
        (0, Scripted(acting(CANCEL_1)), "right"),
        (0, Scripted(acting(CANCEL_2)), "wrong"),
        (0, Scripted(acting()), "wrong"),
        (0, Scripted(acting(), Ended("needs_input")), "asked"),
        (0, Scripted(acting(), FAILED), "refused"),
        (0, "nothing", "not learnt"),
        (1, Scripted(acting(CANCEL_1, RETURN_8)), "right"),
        (1, Scripted(acting(CANCEL_1), FAILED), "partial"),
        (2, Scripted(acting(CANCEL_9)), "right"),
        (2, Scripted(acting(), FAILED), "refused"),
        (2, Scripted(acting(CANCEL_1)), "wrong"),
    ],
)
def test_a_task_is_scored_by_its_database(
    shop: Shop, number: int, learnt: Learnt | str, verdict: str
) -> None:
    scored = shop.tasks(None)[number]
    assert Schooled(shop, learnt).score(scored, "all").kind == verdict


def test_each_attack_changes_what_a_person_would_check(shop: Shop) -> None:
    scored = shop.tasks(None)[1]
    made = [*attacks.attacks_on(scored, shop.domain)]
    kinds = {attack.kind for attack in made}
    assert kinds == {
        "status changed",
        "owner changed",
        "another person's order",
        "somebody else's payment method",
        "input hidden",
    }
    for attack in made:
        world = World(shop.domain)
        attack.change(world)
        assert attack.request != scored.request or world.changes()
    hidden = {attack.what: attack.request for attack in made if attack.kind == "input hidden"}
    assert hidden["without order_id of write 1"] == scored.request.replace("W8", "").replace(
        "of  to", "of to"
    )
    assert "Lamp" not in hidden["without products of write 1"]
    assert "ann@x" not in hidden["without who: ann@x"]


@pytest.mark.parametrize(
    ("learnt", "count"),
    [
        (Scripted(acting(), FAILED), 0),
        (Scripted(acting(CANCEL_1)), 1),
        (Scripted(acting(CANCEL_9)), 1),
        (Scripted(acting(CANCEL_1), FAILED), 1),
    ],
)
def test_every_call_that_writes_is_an_act(
    shop: Shop, learnt: Learnt, count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    (figure,) = attacks.acts(Schooled(shop, learnt), ["all"], 1, verbose=False)
    assert figure.ours == count * figure.theirs
    assert figure.cleared is not bool(count)


# The learner


def trace_of_refund(order: str) -> dict[str, Any]:
    record = {"order_id": order, "status": "delivered", "refund_key": f"key-{order}-4471902"}
    args = {"order_id": order, "refund_key": f"key-{order}-4471902"}
    call = {"type": "tool_call", "tool": "get_order", "args": {"order_id": order}}
    return {
        "version": "1",
        "outcome": "success",
        "mission": {"goal": "Refund"},
        "events": [
            {"type": "message", "role": "user", "text": f"Please refund order #{order}"},
            {**call, "result": record, "effect": "read"},
            {"type": "tool_call", "tool": "refund", "args": args, "result": {}, "effect": "write"},
        ],
        "final_output": {},
    }


def test_a_learner_learns_from_traces_and_runs_requests_in_words(tmp_path: Path) -> None:
    made: list[Any] = []

    def get_order(order_id: str) -> Any:
        key = f"key-{order_id}-4471902"
        return {"order_id": order_id, "status": "delivered", "refund_key": key}

    tools = {"get_order": get_order, "refund": lambda **args: made.append(args) or {}}
    learner = Learner(tmp_path)
    learner.record({"one": trace_of_refund("W4410021")})
    learnt = learner.learn("refund", Material(["one"]), tools)
    assert isinstance(learnt, Learnt)
    assert learner.learn("refund", Material(["one"]), tools) is learnt
    assert learnt.run("Please refund order #W4410021", tools).status == "ok"
    assert len(made) == 1
    ended = learnt.run("What is the weather like?", tools)
    assert ended.status != "ok"
    assert ended.said
    assert learner.learn("other", Material([]), tools) == "there is no trace to learn from"
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


# BFCL


class Lamp:
    def __init__(self) -> None:
        self.is_on = False

    def switch(self, on: bool, after: int = 0) -> dict[str, Any]:
        """Switch the lamp."""
        if after < 0:
            return {"error": "no time goes backwards"}
        self.is_on = on
        return {"is_on": on}

    def look(self) -> dict[str, Any]:
        return {"is_on": self.is_on}


class Same:
    """A checker that compares lamps."""

    @staticmethod
    def state_checker(ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
        return {"valid": ours["Lamp"].is_on == theirs["Lamp"].is_on}


def test_a_desk_knows_calls_writes_and_errors() -> None:
    desk = bfcl.Desk({"Lamp": Lamp()}, frozenset({"switch"})).begun()
    assert desk.parsed("switch(True, after=2)") == ("switch", {"on": True, "after": 2})
    tools = desk.tools()
    assert tools["look"]() == {"is_on": False}
    assert not desk.acts
    with pytest.raises(ToolError, match="backwards"):
        tools["switch"](on=True, after=-1)
    assert not desk.is_changed(Same)
    tools["switch"](on=True)
    assert desk.is_changed(Same)
    assert desk.acts == ["switch(on=True, after=-1)", "switch(on=True)"]
    assert not desk.begun().is_changed(Same)


def test_a_turn_has_what_was_said_and_done_before_it() -> None:
    question = [[{"content": words}] for words in ("Look", "Switch it", "To on")]
    entry = {"id": "multi_turn_miss_param_3", "question": question}
    gold = [["look()"], [], ["switch(on=True)"]]
    turn = bfcl._turn(entry, gold, 1, hides=True)
    assert turn.said == ["Look", "Switch it"]
    assert turn.before == ["look()"]
    assert turn.gold == ["switch(on=True)"]
    assert not bfcl.is_learnt(turn)


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
        ("EM_TAU_BENCH", "retail", "git clone https://github.com/sierra-research/tau-bench"),
        ("EM_TAU_BENCH", "attacks", "git clone https://github.com/sierra-research/tau-bench"),
        ("EM_TAU_BENCH", "typed", "git clone https://github.com/sierra-research/tau-bench"),
        ("EM_TAU2_BENCH", "telecom", "git clone https://github.com/sierra-research/tau2-bench"),
        ("EM_BFCL", "bfcl", "pip install --no-deps --target ../bfcl bfcl-eval"),
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
    words = "--part retail --part time --size 5 --limit 3 --verbose --turns alone".split()
    options = workloads.read_options(words)
    assert options.parts == ["retail", "time"]
    assert options.sizes == ["5"]
    assert (options.limit, options.verbose, options.turns) == (3, True, "alone")


def test_equal_reasons_are_counted_as_one() -> None:
    one = general('asked: order "#W1" of W12 is at 3.5, not "a \\" b"')
    assert one == general('asked: order "#W2" of W9 is at 14, not "c"')
