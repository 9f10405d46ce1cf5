"""A plain routine: lets, blocks, expectations, and checks that hand over before the first write."""

import asyncio
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from em.errors import InvalidRoutine, RoutineError
from em.runner.engine import arun_routine, run_routine
from em.runner.package import load_program
from em.runner.preparation import prepare_routine
from em.runner.run import Prepared

EXCHANGE = """
version: "1"
name: exchange_items
checks: hand_over
input_schema:
  type: object
  required: [email, order_id, items, new_items]
  properties:
    email: {type: string, format: email, description: e-mail of the customer}
    order_id: {type: string, pattern: "^#W[0-9]+$"}
    items: {type: array, minItems: 1, uniqueItems: true, items: {type: object}}
    new_items: {type: array, items: {type: object}}
    note: {type: string}
tools:
- {name: find_user, effect: read}
- {name: get_order, effect: read}
- {name: get_product, effect: read}
- {name: exchange, effect: write}
- {name: tell, effect: write}
steps:
- {id: user, type: tool.call, tool: find_user, args: {email: "{{ email }}"}, save_as: user}
- id: order
  type: tool.call
  tool: get_order
  args: {order_id: "{{ order_id }}"}
  save_as: order
  expect: {required: [status, user_id, items], properties: {status: {const: delivered}}}
  held: 14/14
- id: own
  type: assert
  check: order.user_id == user.user_id
  message: the order is not this customer's
  held: 12/12
- id: each
  type: for_each
  over: {wanted: items, new: new_items}
  max: 3
  save_as: each
  steps:
  - {id: item, type: let, value: "{{ only(order.items, name=wanted.name) }}", save_as: item}
  - {id: product, type: tool.call, tool: get_product, args: {number: "{{ item.product_id }}"}, save_as: product}
  - id: variant
    type: let
    value: "{{ only(product.variants, options=merge(item.options, new.options)) }}"
    save_as: variant
    expect: {properties: {available: {const: true}}}
    held: 3/3
- {id: distinct, type: assert, check: 'distinct(every(each, "item.id"))', message: one item twice}
- id: exchange
  type: tool.call
  tool: exchange
  args:
    order_id: "{{ order_id }}"
    old: '{{ every(each, "item.id") }}'
    new: '{{ every(each, "variant.id") }}'
  save_as: done
  expect: {properties: {status: {const: exchange requested}}}
- {id: told, type: tool.call, tool: tell, when: given(note), args: {text: "{{ note }}"}}
- {id: result, type: return, value: "{{ done }}"}
"""  # noqa: E501 - one step a line, as people write them


class Shop:
    """A shop with one order of two items."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.order: Any = {
            "status": "delivered",
            "user_id": "u1",
            "items": [
                {"id": "1", "name": "Lamp", "product_id": "p1", "options": {"color": "red"}},
                {"id": "2", "name": "Desk", "product_id": "p2", "options": {"size": "S"}},
            ],
        }
        self.products: Any = {
            "p1": {
                "variants": {
                    "10": {"id": "10", "available": True, "options": {"color": "Blue"}},
                    "11": {"id": "11", "available": True, "options": {"color": "red"}},
                }
            },
            "p2": {"variants": {"20": {"id": "20", "available": True, "options": {"size": "L"}}}},
        }
        self.answer: Any = {"status": "exchange requested"}

    def find_user(self, email: str) -> Any:
        self.calls.append(("find_user", email))
        if email != "ana@example.com":
            raise LookupError("no such user")
        return {"user_id": "u1"}

    def get_order(self, order_id: str) -> Any:
        self.calls.append(("get_order", order_id))
        return deepcopy(self.order)

    def get_product(self, number: str) -> Any:
        self.calls.append(("get_product", number))
        return deepcopy(self.products[number])

    def exchange(self, order_id: str, old: Any, new: Any) -> Any:
        self.calls.append(("exchange", (order_id, old, new)))
        return self.answer

    def tell(self, text: str) -> Any:
        self.calls.append(("tell", text))
        return "ok"

    @property
    def written(self) -> list[Any]:
        return [call for call in self.calls if call[0] in ("exchange", "tell")]

    def tools(self) -> dict[str, Any]:
        names = ("find_user", "get_order", "get_product", "exchange", "tell")
        return {name: getattr(self, name) for name in names}


GIVEN: Any = {
    "email": "ana@example.com",
    "order_id": "#W1",
    "items": [{"name": "lamp"}, {"name": "DESK"}],
    "new_items": [{"options": {"color": "blue"}}, {"options": {"size": "l"}}],
}


def written(folder: Path, text: str = EXCHANGE) -> Path:
    (folder / "routine.yaml").write_text(text)
    return folder


def run(folder: Path, shop: Shop, given: Any = None, text: str = EXCHANGE, **options: Any) -> Any:
    return run_routine(written(folder, text), _with(given), shop.tools(), **options)


def prepared(folder: Path, shop: Shop, given: Any = None) -> Prepared:
    return prepare_routine(written(folder, EXCHANGE), _with(given), shop.tools())


def _with(given: Any) -> Any:
    given = {**GIVEN, **(given or {})}
    return {name: value for name, value in given.items() if value is not ...}


def test_a_plain_routine_does_what_was_asked(tmp_path: Path) -> None:
    shop = Shop()
    result = run(tmp_path, shop)
    assert result.status == "ok", result
    assert shop.written == [("exchange", ("#W1", ["1", "2"], ["10", "20"]))]
    assert result.output == {"status": "exchange requested"}
    assert [list(record) for record in result.context["each"]] == [
        ["wanted", "new", "item", "product", "variant"]
    ] * 2
    assert "item" not in result.context, "names of a turn are local"


def test_it_does_the_same_under_asyncio(tmp_path: Path) -> None:
    shop = Shop()
    result = asyncio.run(arun_routine(written(tmp_path), GIVEN, shop.tools()))
    assert (result.status, len(shop.written)) == ("ok", 1)


@pytest.mark.parametrize(
    ("step", "check", "change", "held"),
    [
        ("order", "order.status", {"status": "pending"}, "14/14"),
        ("order", "order", {"items": ...}, "14/14"),
        ("own", "order.user_id == user.user_id", {"user_id": "u2"}, "12/12"),
        ("item", "{{ only(order.items, name=wanted.name) }}", {"items": []}, ""),
    ],
)
def test_a_check_that_fails_before_the_first_write_hands_over(
    tmp_path: Path, step: str, check: str, change: Any, held: str
) -> None:
    shop = Shop()
    shop.order |= change
    shop.order = {name: value for name, value in shop.order.items() if value is not ...}
    result = run(tmp_path, shop)
    assert (result.status, result.pending_prompt, result.failure) == ("needs_input", None, None)
    assert shop.written == []
    reason = result.reason
    assert (reason.step_id, reason.check, reason.held) == (step, check, held)
    assert reason.message


def test_the_reason_says_what_was_recorded_and_what_is_there_now(tmp_path: Path) -> None:
    shop = Shop()
    shop.order["status"] = "pending"
    reason = run(tmp_path, shop).reason
    assert (reason.recorded, reason.now) == ({"const": "delivered"}, "pending")
    assert reason.message == '`order.status`: "delivered" was expected, and it is "pending"'
    shop = Shop()
    shop.order["user_id"] = "u2"
    reason = run(tmp_path, shop).reason
    assert reason.now == {"order.user_id": "u2", "user.user_id": "u1"}
    assert reason.message == "the order is not this customer's"
    assert str(reason).endswith("(it held in 12/12 recordings); nothing was done")


@pytest.mark.parametrize(
    ("given", "step"),
    [
        ({"items": []}, "input"),
        ({"items": [{"name": "lamp"}, {"name": "lamp"}]}, "input"),
        ({"order_id": "W1"}, "input"),
        ({"colour": "red"}, "input"),
        ({"email": "bob@example.com"}, "user"),
        ({"items": [{"name": "lamp"}]}, "each"),
        ({"items": [{"name": "lamp"}] * 2 + [{"name": "desk"}], "new_items": []}, "input"),
        ({"items": [{"name": "lamp"}, {"name": " Lamp"}]}, "variant"),
        ({"items": [{"name": "lamp"}, {}]}, "item"),
        ({"new_items": [{"options": {"weight": 3}}, {}]}, "variant"),
        ({"items": [{"name": str(n)} for n in range(4)], "new_items": [{}] * 4}, "each"),
    ],
)
def test_inputs_that_do_not_fit_hand_over(tmp_path: Path, given: Any, step: str) -> None:
    shop = Shop()
    result = run(tmp_path, shop, given)
    assert (result.status, result.pending_prompt) == ("needs_input", None), result
    assert result.reason.step_id == step
    assert shop.written == []


def test_the_same_item_twice_is_found_by_a_check_after_the_block(tmp_path: Path) -> None:
    shop = Shop()
    given = {
        "items": [{"name": "lamp"}, {"name": "lamp "}],
        "new_items": GIVEN["new_items"][:1] * 2,
    }
    result = run(tmp_path, shop, given)
    assert (result.reason.step_id, result.reason.message) == (
        "distinct",
        "one item twice",
    )
    assert shop.written == []


def test_a_missing_input_is_asked_for(tmp_path: Path) -> None:
    shop = Shop()
    result = run(tmp_path, shop, {"email": ...})
    assert (result.status, result.reason) == ("needs_input", None)
    prompt = result.pending_prompt
    assert [field["label"] for field in prompt.fields] == ["e-mail of the customer"]
    answers = {prompt.step_id: {"email": "ana@example.com"}}
    assert run(tmp_path, shop, {"email": ...}, answers=answers).status == "ok"


def test_after_a_write_a_failed_check_is_a_failure_that_lists_what_was_done(
    tmp_path: Path,
) -> None:
    shop = Shop()
    shop.answer = {"status": "refused"}
    result = run(tmp_path, shop, {"note": "hi"})
    assert (result.status, result.reason) == ("failed", None)
    assert result.failure.error_type == "UnexpectedResult"
    assert result.failure.context["done"] == ["exchange"]
    assert len(shop.written) == 1, "nothing was done after it"


def test_a_write_that_fails_is_a_failure(tmp_path: Path) -> None:
    shop = Shop()
    tools = {**shop.tools(), "exchange": lambda **_: 1 / 0}
    result = run_routine(written(tmp_path), GIVEN, tools)
    assert (result.status, result.reason) == ("failed", None)


def test_a_missing_tool_is_a_failure_and_no_finding(tmp_path: Path) -> None:
    tools = Shop().tools()
    del tools["tell"]
    result = run_routine(written(tmp_path), GIVEN, tools)
    assert (result.status, result.reason) == ("failed", None)


def test_without_hand_over_a_failed_check_is_a_failure(tmp_path: Path) -> None:
    shop = Shop()
    shop.order["status"] = "pending"
    result = run(tmp_path, shop, text=EXCHANGE.replace("checks: hand_over\n", ""))
    assert (result.status, result.failure.error_type) == ("failed", "CheckFailed")


TWO_WAYS = """
name: two_ways
checks: hand_over
input_schema: {type: object, properties: {email: {type: string}, phone: {type: string}}}
tools: [{name: by_email, effect: read}, {name: by_phone, effect: read}]
steps:
- {id: a, type: tool.call, tool: by_email, when: given(email), args: {email: "{{ email }}"}, save_as: user}
- {id: b, type: tool.call, tool: by_phone, when: given(phone), args: {phone: "{{ phone }}"}, save_as: user}
- {id: end, type: return, value: "{{ user.id }}"}
"""  # noqa: E501 - as above


def test_two_ways_to_one_value_must_agree(tmp_path: Path) -> None:
    tools = {"by_email": lambda email: {"id": email[0]}, "by_phone": lambda phone: {"id": phone}}
    folder = written(tmp_path, TWO_WAYS)
    for given in ({"email": "a@b"}, {"phone": "a"}, {"email": "a@b", "phone": "A"}):
        assert run_routine(folder, given, tools).output.lower() == "a"
    result = run_routine(folder, {"email": "a@b", "phone": "c"}, tools)
    assert (result.status, result.reason.step_id) == ("needs_input", "b")
    assert (result.reason.recorded, result.reason.now) == ({"id": "a"}, {"id": "c"})
    result = run_routine(folder, {}, tools)
    assert (result.status, result.reason.step_id) == ("needs_input", "end")


def test_a_read_is_retried_before_it_hands_over(tmp_path: Path) -> None:
    shop = Shop()
    text = EXCHANGE.replace("save_as: user}", "save_as: user, retry: {attempts: 3, backoff: 0}}")
    result = run(tmp_path, shop, {"email": "bob@example.com"}, text=text)
    assert (result.reason.step_id, len(shop.calls)) == ("user", 3)
    assert "no such user" in result.reason.message


NESTED = """
name: nested
checks: hand_over
input_schema: {type: object, required: [boxes], properties: {boxes: {type: array}}}
tools: [{name: weigh, effect: read}, {name: send, effect: write}]
steps:
- id: boxes
  type: for_each
  over: {box: boxes}
  save_as: all
  steps:
  - id: things
    type: for_each
    over: {thing: box.things}
    save_as: weighed
    steps:
    - {id: weigh, type: tool.call, tool: weigh, args: {thing: "{{ thing }}"}, save_as: weight}
    - {id: send, type: tool.call, tool: send, args: {to: "{{ box.to }}", thing: "{{ thing }}"}, when: weight > 1}
  - {id: sum, type: let, value: '{{ every(weighed, "weight") | sum }}', save_as: total}
- {id: end, type: return, value: '{{ every(all, "total") }}'}
"""  # noqa: E501 - as above
BOXES: Any = {"boxes": [{"to": "x", "things": ["a", "bb"]}, {"to": "y", "things": ["ccc"]}]}


def weigh(thing: str) -> int:
    return len(thing)


def test_blocks_nest_and_may_write(tmp_path: Path) -> None:
    sent: list[Any] = []
    tools = {"weigh": weigh, "send": lambda to, thing: sent.append((to, thing))}
    result = run_routine(written(tmp_path, NESTED), BOXES, tools)
    assert (result.status, result.output) == ("ok", [3, 3])
    assert sent == [("x", "bb"), ("y", "ccc")]


def test_a_failure_in_a_block_says_in_which_turns_something_was_done(tmp_path: Path) -> None:
    def weigh_some(thing: str) -> int:
        if thing == "ccc":
            raise LookupError("no such thing")
        return len(thing)

    tools = {"weigh": weigh_some, "send": lambda to, thing: "ok"}
    result = run_routine(written(tmp_path, NESTED), BOXES, tools)
    assert (result.status, result.failure.step_id) == ("failed", "weigh")
    assert result.failure.context["done"] == ["send[0.1]"]


@pytest.mark.parametrize(
    ("step", "problem"),
    [
        ("{id: a, type: let, value: 1}", "needs `save_as`"),
        ("{id: a, type: let, value: 1, save_as: b, timeout: 3}", "unknown field `timeout`"),
        ("{id: a, type: for_each, over: {}, steps: []}", "at least one list"),
        ("{id: a, type: assert, check: x, expect: {}}", "can't have `expect`"),
        ("{id: a, type: return, held: 1/2}", "can't have `held`"),
        ("{id: a, type: tool.call, tool: t, held: often}", "held"),
        (
            "{id: a, type: for_each, over: {x: y}, steps: [{id: b, type: return}]}",
            "can't stand in the block",
        ),
        (
            "{id: a, type: for_each, over: {x: y}, steps: [{id: a, type: assert, check: x}]}",
            "two steps have the id",
        ),
    ],
)
def test_what_would_have_no_effect_is_refused(step: str, problem: str) -> None:
    with pytest.raises((InvalidRoutine, RoutineError), match=problem):
        load_program(f"name: x\nsteps: [{step}]".encode(), "here")


ASKED = """
version: "1"
name: book
checks: hand_over
tools: [{name: hall, effect: read}, {name: rules, effect: read}, {name: book, effect: write}]
steps:
- {id: hall, type: tool.call, tool: hall, args: {}, save_as: hall, expect: {required: [day]}}
- {id: free, type: assert, check: "hall.day == day"}
- {id: large, type: assert, check: "guests <= hall.seats", message: the hall is too small}
- {id: own, type: assert, check: "hall.owner == owner"}
- {id: rules, type: tool.call, tool: rules, args: {}, save_as: rules}
- {id: late, type: assert, check: "guests <= rules.most"}
- {id: book, type: tool.call, tool: book, args: {day: "{{ day }}"}, save_as: done}
- {id: done, type: assert, check: "guests == 0"}
- {id: end, type: return, value: "{{ done }}"}
"""


def test_a_failed_assert_names_those_behind_it_that_fail_too(tmp_path: Path) -> None:
    (tmp_path / "routine.yaml").write_text(ASKED)
    called: list[str] = []

    def rules() -> Any:
        called.append("rules")
        return {"most": 1}

    tools = {
        "hall": lambda: {"day": "2026-05-02", "seats": 40, "owner": "ana"},
        "rules": rules,
        "book": lambda day: called.append("book"),
    }
    given = {"day": "2026-05-01", "guests": 90, "owner": "ana"}
    reason = run_routine(tmp_path, given, tools).reason
    assert reason is not None
    # What a later read would show is not known, and nothing is read to find out.
    assert [one.step_id for one in (reason, *reason.also)] == ["free", "large"]
    assert called == []
    assert reason.now == {"hall.day": "2026-05-02", "day": "2026-05-01"}
    for words in ("2026-05-01", "2026-05-02", "the hall is too small"):
        assert words in reason.message
