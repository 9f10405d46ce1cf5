"""A run acts only if all explanations agree and every guard holds; else it asks or stops."""

from typing import Any

import pytest
import yaml

from em.runner import agreement, wording
from em.runner.agreement import deeper, place_parts
from em.runner.engine import run_routine
from em.runner.expressions.direct import Together, together
from em.runner.package import Package
from em.runner.run import RunResult
from em.runner.wording import bind
from em.values.call import Fix

ROUTINE = """
version: "1"
name: refund
tools:
  - {name: get_order, effect: read}
  - {name: get_user, effect: read}
  - {name: refund, effect: write}
  - {name: notify, effect: write}
input_schema:
  type: object
  properties:
    order_id: {type: string, examples: ["#W1001"]}
    reason: {type: string, examples: [mistake]}
    request: {type: string}
  required: []
  additionalProperties: false
request: {input: request, template: "Refund {{ order_id }}, please"}
asks:
  reason: {recorded: mistake, candidates: ["order.reason", '"mistake"']}
steps:
  - {id: get_user, type: tool.call, tool: get_user, save_as: user}
  - {id: get_order, type: tool.call, tool: get_order, args: {id: "{{ order_id }}"}, save_as: order}
  - id: refund
    type: tool.call
    tool: refund
    args: {order: "{{ order_id }}", amount: "{{ order.total }}"}
    agree: {amount: ["order.paid"], order: ['among(every(user, "orders.*"), order_id)']}
    guards: ['order.status == "open"']
  - id: notify
    type: tool.call
    tool: notify
    args: {order: "{{ order_id }}", reason: "{{ reason }}"}
    guards: ["order.user == user.id"]
"""
ALL = {"order_id": "#W1001", "reason": "mistake"}


class Shop:
    def __init__(self, **order: Any) -> None:
        self.order = {
            "total": 10, "paid": 10, "status": "open", "user": "u1", "reason": "late", **order
        }  # fmt: skip
        self.done: list[Any] = []

    def run(self, folder: Any, given: dict[str, Any], **options: Any) -> RunResult:
        tools = {
            "get_user": lambda: {"id": "u1", "orders": ["#W1001", "#W2002"]},
            "get_order": lambda id: self.order,  # noqa: A006 - the tool's own name
            "refund": lambda **args: self.done.append(args) or "ok",
            "notify": lambda **args: self.done.append(args) or "ok",
        }
        return run_routine(folder, given, tools, **options)


@pytest.fixture
def folder(tmp_path: Any) -> Any:
    (tmp_path / "routine.yaml").write_text(ROUTINE)
    return tmp_path


def test_the_recorded_inputs_run(folder: Any) -> None:
    shop = Shop()
    assert shop.run(folder, ALL).status == "ok"
    assert [call.get("amount", call.get("reason")) for call in shop.done] == [10, "mistake"]


def test_explanations_that_differ_are_asked_about_before_anything_is_done(folder: Any) -> None:
    shop = Shop(paid=7)
    asked = shop.run(folder, ALL)
    assert (asked.status, shop.done) == ("needs_input", [])
    assert asked.pending_prompt is not None
    assert "10 if" in asked.pending_prompt.message
    assert "7 if" in asked.pending_prompt.message
    done = shop.run(folder, ALL, answers={"inputs": {"refund.amount": 7}})
    assert (done.status, shop.done[0]["amount"]) == ("ok", 7)


def test_an_explanation_that_comes_out_empty_is_a_veto(folder: Any) -> None:
    shop = Shop()
    asked = shop.run(folder, {**ALL, "order_id": "#W9999"})
    assert (asked.status, shop.done) == ("needs_input", [])


@pytest.mark.parametrize("change", [{"status": "shipped"}, {"user": "u2"}, {"status": None}])
def test_a_guard_of_any_effect_stops_the_run_before_the_first(folder: Any, change: Any) -> None:
    shop = Shop(**change)
    stopped = shop.run(folder, ALL)
    assert (stopped.status, shop.done) == ("failed", [])
    assert stopped.failure is not None
    assert stopped.failure.error_type == "GuardFailed"


def test_a_missing_input_is_asked_for_with_its_candidates_before_the_first_effect(
    folder: Any,
) -> None:
    shop = Shop()
    asked = shop.run(folder, {"order_id": "#W2002"})
    assert (asked.status, shop.done) == ("needs_input", [])
    assert asked.pending_prompt is not None
    assert asked.pending_prompt.step_id == "inputs"
    assert '"late" if' in asked.pending_prompt.message
    answers = {"inputs": {"reason": "late"}}
    assert shop.run(folder, {"order_id": "#W2002"}, answers=answers).status == "ok"


def test_the_request_binds_its_inputs_and_other_words_are_asked_about(folder: Any) -> None:
    shop = Shop(reason="mistake")
    bound = shop.run(folder, {"request": "refund #W1001, please"})
    assert (bound.status, shop.done[0]["order"]) == ("ok", "#W1001")
    other = shop.run(folder, {"request": "Give me back my money for #W1001"})
    assert (other.status, len(shop.done)) == ("needs_input", 2)


@pytest.mark.parametrize(
    "words", ["#W1001 and #W2002", "#W1001 if he agrees", "everything", "#W1001,"]
)
def test_a_text_that_is_longer_than_an_id_is_not_taken_for_one(folder: Any, words: str) -> None:
    shop = Shop()
    asked = shop.run(folder, {"request": f"Refund {words}, please"})
    assert (asked.status, shop.done) == ("needs_input", [])


def test_a_recorded_value_counts_only_while_what_explains_it_still_gives_it(folder: Any) -> None:
    late = Shop(reason="late")
    asked = late.run(folder, {"request": "Refund #W1001, please"})
    assert (asked.status, late.done) == ("needs_input", [])
    same = Shop(reason="mistake")
    assert same.run(folder, {"request": "Refund #W1001, please"}).status == "ok"


def test_a_request_and_an_input_that_contradict_each_other_are_refused(folder: Any) -> None:
    shop = Shop()
    given = {"request": "Refund #W1001, please", "order_id": "#W2002"}
    assert (shop.run(folder, given).status, shop.done) == ("failed", [])


@pytest.mark.parametrize(
    ("template", "text", "bound"),
    [
        ("refund {{ a }}", "refund #W1", {"a": "#W1"}),
        ("refund {{ a }}", "  Refund   #W1 ", {"a": "#W1"}),
        ("{{ a }} to {{ b }}", "Rome to New York", {"a": "Rome", "b": "New York"}),
        ("{{ a }} and {{ a }}", "x and x", {"a": "x"}),
        ("{{ a }} and {{ a }}", "x and y", None),
        ("refund {{ a }} now", "refund #W1", None),
        ("refund {{ a }}", "refund", None),
        ("send {{ a[0] }}, {{ a[1] }}", "send x, y", {"a": ["x", "y"]}),
        ("I'm {{ a }} here", "i am Bob here", {"a": "Bob"}),
        ("it is {{ a }}", "It’s O'Neil's", {"a": "O'Neil's"}),
        ("say {{ a }} now", "say don't stop now", {"a": "don't stop"}),
        ("do {{ a }}", "don't go", {"a": "not go"}),
        ("just do it", "just do it", {}),
        ("just do it", "just do it twice", None),
        ("fly {{ a }} to {{ b }}", "Fly İzmir TO Rome", {"a": "İzmir", "b": "Rome"}),
    ],
)
def test_a_template_binds_the_same_words(template: str, text: str, bound: Any) -> None:
    assert bind(template, text) == bound


@pytest.mark.parametrize("parts", [("a",), ("a", 0, "b"), ("a.b", 1), ('x"y', "z"), ("[0]", 0)])
def test_a_place_reads_back(parts: tuple[str | int, ...]) -> None:
    place = ""
    for part in parts:
        place = deeper(place, part)
    assert tuple(place_parts(place)) == parts


def test_the_routine_is_what_an_author_can_read() -> None:
    assert yaml.safe_load(ROUTINE)["steps"][2]["guards"] == ['order.status == "open"']


def test_a_fix_can_not_change_the_arguments_of_an_explained_effect(folder: Any) -> None:
    calls: list[Any] = []

    def refund(**args: Any) -> Any:
        calls.append(args)
        raise ValueError("the amount must be smaller")

    tools = {
        "get_user": lambda: {"id": "u1", "orders": ["#W1001"]},
        "get_order": lambda id: Shop().order,  # noqa: A006 - the tool's own name
        "refund": refund,
        "notify": lambda **_args: "ok",
    }

    def fix(_context: Any) -> Fix:
        return Fix(strategy="modify_args", args={"order": "#W1001", "amount": 1})

    result = run_routine(folder, ALL, tools, fix)
    assert (result.status, len(calls)) == ("failed", 1)


def labels(result: RunResult) -> dict[str, str]:
    assert result.pending_prompt is not None
    return {field["name"]: field["label"] for field in result.pending_prompt.fields}


def with_channel(folder: Any) -> None:
    """Let the last step take an input that no read may explain, and one that nothing says."""
    routine = yaml.safe_load(ROUTINE)
    routine["input_schema"]["properties"] |= {
        "channel": {"type": "string", "examples": ["mail"]},
        "copies": {"type": "integer"},
    }
    routine["asks"]["channel"] = {"recorded": "mail", "candidates": ['"mail"']}
    routine["steps"][-1]["args"] |= {"channel": "{{ channel }}", "copies": "{{ copies }}"}
    (folder / "routine.yaml").write_text(yaml.safe_dump(routine))


def test_what_needs_no_read_is_asked_with_the_first_question(folder: Any) -> None:
    with_channel(folder)
    shop, words = Shop(), {"request": "give the money for #W2002 back"}
    first = shop.run(folder, words)
    assert set(labels(first)) == {"order_id", "channel", "copies", "request"}
    given = {"order_id": "#W2002", "channel": "text", "copies": 1, "request": True}
    second = shop.run(folder, words, answers={"inputs": given})
    assert set(labels(second)) == {"reason"}, "what may explain it was read first"
    done = shop.run(folder, words, answers={"inputs": {**given, "reason": "late"}})
    assert (done.status, shop.done[-1]["channel"]) == ("ok", "text")


def test_a_question_says_why_it_asks_for_an_input_that_nothing_recorded_explains(
    folder: Any,
) -> None:
    with_channel(folder)
    asked = labels(Shop().run(folder, {"request": "give the money for #W2002 back"}))
    assert asked["copies"] == "copies: the run needs it, and nothing recorded says what it is"
    assert asked["order_id"] == (
        "order_id: the request does not say it in the recorded words;"
        ' it was "#W1001" in the recording'
    )
    given = {"channel": "text", "copies": 1, "reason": "late"}
    asked = labels(Shop().run(folder, given))
    assert asked["order_id"] == 'order_id: the run needs it; it was "#W1001" in the recording'


GUARDS = [
    ('order.status == "open"', {"status": "shipped"},
     '`order.status` is "shipped" now; it was "open" when recorded'),
    ('order.status == "open"', {"status": None},
     '`order.status` is empty now; it was "open" when recorded'),
    ("order.held == none", {"held": "audit"},
     '`order.held` is "audit" now; it was empty when recorded'),
    ("order.paid > 0", {"paid": 0}, "`order.paid` is 0 now; it was above 0 when recorded"),
    ("order.user == user.id", {"user": "u2"},
     '`order.user` is "u2" now; it was the same as `user.id` when recorded'),
    ("order.id == order_id", {"id": "#W7"},
     '`order.id` is "#W7" now; it was the same as `order_id` when recorded'),
    ("order.paid >= order.total", {"paid": 3},
     "`order.paid` is 3 now; it was at least `order.total` when recorded"),
    ('kind_of(order.mail) == "e-mail"', {"mail": "Error: no such order"},
     "`order.mail` is a text now; it was an e-mail when recorded"),
    ('kind_of(order.mail) != "none"', {"mail": None},
     "`order.mail` is empty now; it was not empty when recorded"),
    ("len(order.notes) == 1", {"notes": []},
     "the number of `order.notes` is 0 now; it was 1 when recorded"),
    ('fact_of(every(order, "items.*"), "sku", order_id, "state") == "new"',
     {"items": [{"sku": "#W1001", "state": "worn"}]},
     '`state` of `order.items.*` where sku is `order_id` is "worn" now;'
     ' it was "new" when recorded'),
    ('least_of(every(order, "items.*"), "sku", order_id, "stock") > 0',
     {"items": [{"sku": "#W1001", "stock": 0}]},
     "the smallest `stock` of `order.items.*` where sku is `order_id` is 0 now;"
     " it was above 0 when recorded"),
    ('among(every(user, "orders.*"), order.parent)', {"parent": "#W7"},
     "`order.parent` was one of `user.orders.*` when recorded; now it can't be seen:"
     " '#W7' is not among the 2 values there"),
    ('order.state.name == "new"', {},
     "`order.state.name` was \"new\" when recorded; now it can't be seen:"),
    ("order.is_open", {"is_open": False},
     "`order.is_open` held when recorded, and does not hold now"),
    ("order.paid == 10 and order.total == 10", {"paid": 9},
     "`order.paid == 10 and order.total == 10` held when recorded, and does not hold now"),
]  # fmt: skip


@pytest.mark.parametrize(("guard", "change", "words"), GUARDS)
def test_a_guard_that_fails_says_what_is_and_what_was(
    folder: Any, guard: str, change: Any, words: str
) -> None:
    routine = yaml.safe_load(ROUTINE)
    routine["steps"][-1]["guards"] = []
    routine["steps"][-2] |= {"guards": [guard], "agree": {}}
    (folder / "routine.yaml").write_text(yaml.safe_dump(routine))
    stopped = Shop(**change).run(folder, ALL)
    assert stopped.failure is not None
    assert stopped.failure.message.startswith(f"step refund: {words}")
    assert stopped.failure.message.endswith(
        "(do it by hand or with the agent; remove the guard from routine.yaml if it does not"
        " matter)"
    )


def test_what_a_routine_requires_is_prepared_once_for_all_its_runs(
    folder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    package, prepared = Package(folder), []

    def count(module: Any, name: str) -> None:
        work = getattr(module, name)

        def counted(*given: Any) -> Any:
            prepared.append(name)
            return work(*given)

        monkeypatch.setattr(module, name, counted)

    for name in ("compile_expression", "compile_value", "names_in_expression"):
        count(agreement, name)
    count(wording, "_split")
    given = {"request": "Refund #W1001, please"}
    asked = [Shop(reason="late").run(package, given).pending_prompt for _ in range(2)]
    assert asked[0] is not None
    assert asked[0] == asked[1]
    done = [Shop(reason="mistake").run(package, given).status for _ in range(2)]
    assert done == ["ok", "ok"]
    prepared.clear()
    assert Shop(reason="mistake").run(package, given).status == "ok"
    assert Shop(reason="late").run(package, given).pending_prompt == asked[0]
    assert prepared == []


def test_a_run_evaluates_each_guard_and_explanation_once(
    folder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluated: list[str] = []
    compile_term = agreement._term

    def counted(text: str, place: str) -> agreement.Term:
        term = compile_term(text, place)

        def evaluate(scope: Any) -> Any:
            evaluated.append(text)
            return term.evaluate(scope)

        return term._replace(evaluate=evaluate)

    def counted_together(texts: list[str]) -> Together:
        guards = together(texts)

        def hold(scope: Any) -> bool:
            evaluated.extend(guards.sources)
            return guards.hold(scope)

        return Together(hold, guards.sources)

    monkeypatch.setattr(agreement, "_term", counted)
    monkeypatch.setattr(agreement, "together", counted_together)
    again = ROUTINE.replace('["order.paid"]', '["order.total", "order.paid"]')
    (folder / "routine.yaml").write_text(again)
    assert Shop(reason="mistake").run(folder, ALL).status == "ok"
    # `order.total` is how the argument is written: it is no second explanation.
    assert sorted(evaluated) == [
        'among(every(user, "orders.*"), order_id)',
        "order.paid",
        'order.status == "open"',
        "order.user == user.id",
    ]


def test_a_guard_on_a_result_that_never_came_stops_the_effect(folder: Any) -> None:
    skipped = ROUTINE.replace("tool: get_user,", "tool: get_user, when: 'false',")
    among = """, order: ['among(every(user, "orders.*"), order_id)']"""
    (folder / "routine.yaml").write_text(skipped.replace(among, ""))
    shop = Shop(reason="mistake")
    stopped = shop.run(folder, ALL)
    assert stopped.failure is not None
    assert "now it can't be seen: 'user' is not defined" in stopped.failure.message
    assert [set(args) for args in shop.done] == [{"order", "amount"}]
