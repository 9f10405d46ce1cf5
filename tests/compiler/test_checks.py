"""A person strikes a check of a routine: it is gone, and compiling again does not bring it back."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cancelled_orders import REASONS, kept, order_of, recording, tools
from em import AsyncMemory, Memory
from em.compiler.checks import (
    checks_of,
    checks_of_reason,
    document_of,
    struck,
    to_strike,
    with_struck,
)
from em.errors import NotFound, UsageError
from em.log.event import EventQuery
from em.runner.package import find_routine, keep_routine, routine_of, texts_of
from em.runner.run import Reason, context_of_misfit
from em.values.json_schema import MOST_MISFITS, misfit


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path / "em.db") as memory:
        yield memory


def ids(memory: Memory, ref: str = "cancel") -> list[str]:
    return [one.id for one in checks_of(document_of(texts_of(find_routine(memory.store, ref))))]


def run(memory: Memory, **more: Any) -> tuple[Any, list[str]]:
    cancelled: list[str] = []
    given = {"email": "u7@example.com", "order_id": "W700", "reason": REASONS[0]}
    return memory.run("cancel", given, tools(order_of(7, **more), cancelled)), cancelled


def test_each_check_has_an_id_words_and_a_count(memory: Memory) -> None:
    kept(memory)
    found = checks_of(document_of(texts_of(find_routine(memory.store, "cancel"))))
    said = {one.id: one.text for one in found}
    assert said["order.status"] == 'order.status is "pending"'
    assert said["order.total"] == "order.total is a number above 0"
    assert said["order.user_id"] == "order.user_id is a text"
    assert said["order.*"] == "order has at most 5 fields"
    assert "order_id in user.orders" in said.values()
    assert {one.held for one in found} == {"4/4"}
    assert len(said) == len(found)


def test_a_struck_check_stops_no_run(memory: Memory) -> None:
    kept(memory)
    ran, cancelled = run(memory, channel="phone")
    assert (ran.status, ran.reason.check, cancelled) == ("needs_input", "order.channel", [])
    done = memory.strike("cancel", "order.channel", reason="any channel will do", by="ana")
    assert (done.old, done.new) == ("cancel@1", "cancel@2")
    ran, cancelled = run(memory, channel="phone")
    assert (ran.status, cancelled) == ("ok", ["W700: no longer needed, True"])
    ran, cancelled = run(memory, channel="phone", status="delivered")
    assert (ran.status, cancelled) == ("needs_input", [])
    (event,) = memory.store.read(EventQuery(kinds=["routine_struck"]))
    assert event.body is not None
    assert (event.body["by"], event.body["check"]) == ("ana", "order.channel")
    assert event.body["reason"] == "any channel will do"
    assert "order.channel" in ids(memory, "cancel@1")
    assert routine_of(find_routine(memory.store, "cancel")).struck == ['order.channel is "web"']


@pytest.mark.parametrize(
    ("check", "gone"),
    [
        ("order.status", {"order.status"}),
        ("order.*", {"order.*"}),
        ("order", {"order.order_id", "order.status", "order.channel", "order.total", "order.*",
                   "order.user_id"}),
    ],
)  # fmt: skip
def test_one_thing_or_all_that_a_step_expects(memory: Memory, check: str, gone: set[str]) -> None:
    kept(memory)
    before = ids(memory)
    memory.strike("cancel", check)
    assert set(before) - set(ids(memory)) == gone


def test_an_assert_is_struck_by_its_id(memory: Memory) -> None:
    kept(memory)
    ran, _ = run(memory, user_id="user_9")
    assert ran.status == "needs_input"
    memory.strike("cancel", ran.reason.step_id)
    assert ran.reason.step_id not in ids(memory)
    ran, cancelled = run(memory, user_id="user_9")
    assert (ran.status, len(cancelled)) == ("ok", 1)


def test_a_hand_over_names_all_that_differs_in_the_record(memory: Memory) -> None:
    kept(memory)
    ran, _ = run(memory, channel="phone", status="delivered")
    named = {one.check for one in (ran.reason, *ran.reason.also)}
    assert named == {"order.status", "order.channel"}
    for there, was in (("phone", "web"), ("delivered", "pending")):
        assert there in ran.reason.message
        assert was in ran.reason.message


def test_one_strike_takes_several_checks_and_leaves_the_others(memory: Memory) -> None:
    kept(memory)
    ran, _ = run(memory, channel="phone", total=0)
    found = to_strike(memory.store, "cancel", ran.reason)
    assert found is not None
    done = memory.strike("cancel", *(one.id for one in found[1]), by="ana")
    assert (done.old, done.new) == ("cancel@1", "cancel@2")
    assert run(memory, channel="phone", total=0)[0].status == "ok"
    assert run(memory, channel="phone", status="delivered")[0].reason.check == "order.status"
    (event,) = memory.store.read(EventQuery(kinds=["routine_struck"]))
    assert event.body is not None
    assert event.body["check"] == "order.channel, order.total"


@pytest.mark.parametrize("checks", [(), ("order.channel", "order.colour")])
def test_of_several_checks_all_are_struck_or_none(memory: Memory, checks: tuple[str, ...]) -> None:
    kept(memory)
    with pytest.raises((NotFound, UsageError)):
        memory.strike("cancel", *checks)
    assert find_routine(memory.store, "cancel").version == 1


def test_what_a_hand_over_does_not_name_is_not_struck() -> None:
    fields = [f"f{number}" for number in range(MOST_MISFITS + 2)]
    expect = {"required": fields, "properties": {name: {"const": "on"} for name in fields}}
    step = {"id": "found", "type": "tool.call", "tool": "find", "save_as": "it", "expect": expect}
    for now in ({}, dict.fromkeys(fields, "off")):
        unfit = misfit(expect, now)
        assert unfit is not None
        about = [context_of_misfit("it", one) for one in (unfit, *unfit.also)]
        first, *more = [
            Reason(step_id="found", **{name: one[name] for name in ("check", "recorded", "now")})
            for one in about
        ]
        named = msgspec.structs.replace(first, also=more)
        ids = [one.id for one in checks_of_reason({"steps": [step]}, named)]
        assert ids == [f"found.{name}" for name in fields[:MOST_MISFITS]]


def test_compiling_again_keeps_it_struck(memory: Memory) -> None:
    kept(memory)
    memory.strike("cancel", "order.channel")
    own = next(one for one in ids(memory) if "." not in one)
    memory.strike("cancel", own)
    before = routine_of(find_routine(memory.store, "cancel")).struck
    # A further value would make it another check of the same field.
    memory.add_trace(recording(5, channel="phone"))
    grown = memory.compile_again("cancel")
    assert grown.new == "cancel@4", grown.why_not
    routine = routine_of(find_routine(memory.store, "cancel"))
    assert routine.struck == before
    assert routine.trials.count("right") == 5
    assert "order.channel" not in ids(memory)
    assert before[1] not in {one.text for one in checks_of(document_of(texts_of(
        find_routine(memory.store, "cancel"))))}  # fmt: skip


def test_what_is_not_there_is_named(memory: Memory) -> None:
    kept(memory)
    with pytest.raises(NotFound, match=r"there is no check 'order\.colour'") as raised:
        memory.strike("cancel", "order.colour")
    assert "order.status" in str(raised.value.fix)
    memory.strike("cancel", "order.status")
    with pytest.raises(UsageError, match="cancel@1 is not the version in use"):
        memory.strike("cancel@1", "order.channel")


def test_a_routine_of_the_older_form_has_decisions(memory: Memory) -> None:
    keep_routine(memory.store, {"routine.yaml": "name: old\nsteps: [{id: a, type: return}]\n"})
    with pytest.raises(UsageError, match="checks: hand_over"):
        memory.strike("old", "a")


def test_comments_of_a_person_stay(memory: Memory) -> None:
    text = (
        "# mine\nname: cancel\nchecks: hand_over\nsteps:\n"
        "# look first\n- {id: a, type: let, value: 1, save_as: a, expect: {const: 1}}\n"
        "- {id: b, type: assert, check: a > 0}\n- {id: end, type: return, value: 1}\n"
    )
    keep_routine(memory.store, {"routine.yaml": text})
    memory.strike("cancel", "b")
    new = texts_of(find_routine(memory.store, "cancel"))["routine.yaml"]
    assert "# mine" in new
    assert "# look first" in new
    assert "a > 0" in new.partition("struck")[2].partition("steps")[0]


def test_the_same_from_async_code(memory: Memory, tmp_path: Path) -> None:
    kept(memory)

    async def work() -> str:
        async with AsyncMemory(tmp_path / "em.db") as other:
            return (await other.strike("cancel", "order.status")).new

    assert asyncio.run(work()) == "cancel@2"


NESTED: Any = {
    "name": "x",
    "checks": "hand_over",
    "steps": [
        {
            "id": "found",
            "type": "tool.call",
            "tool": "t",
            "save_as": "order",
            "held": "3/3",
            "expect": {
                "type": "object",
                "required": ["pay", "lines"],
                "properties": {
                    "pay": {"required": ["kind"], "properties": {"kind": {"const": "card"}}},
                    "lines": {
                        "type": "array",
                        "minItems": 1,
                        "items": {"required": ["name"], "properties": {"n.o": {"enum": [1, 2]}}},
                    },
                },
            },
        },
        {
            "id": "each",
            "type": "for_each",
            "over": {"line": "order.lines"},
            "steps": [{"id": "few", "type": "assert", "check": "line.count <= 3"}],
        },
        {"id": "end", "type": "return", "value": 1},
    ],
}


def test_checks_of_parts_and_of_turns() -> None:
    assert [one.id for one in checks_of(NESTED)] == [
        "found.pay.kind",
        "found.lines[].n.o",
        "found.lines[].name",
        "found.lines.*",
        "few",
    ]
    made = struck(NESTED, "found.lines[].n.o")
    assert made["struck"] == ["order.lines[].n.o is 1 or 2"]
    assert "found.lines[].n.o" not in [one.id for one in checks_of(made)]
    assert made["steps"][0]["expect"]["properties"]["lines"]["items"] == {"required": ["name"]}
    assert "found.lines.*" not in [one.id for one in checks_of(struck(NESTED, "found.lines.*"))]
    made = struck(NESTED, "found.lines")
    assert made["struck"] == ["order.lines is as recorded"]
    assert [one.id for one in checks_of(made)] == ["found.pay.kind", "found.lines", "few"]
    made = struck(NESTED, "found")
    assert "expect" not in made["steps"][0]
    assert "held" not in made["steps"][0]
    assert [one.id for one in checks_of(struck(NESTED, "few"))][-1] == "found.lines.*"
    assert NESTED["steps"][0]["held"] == "3/3"


@pytest.mark.parametrize(
    ("text", "check", "is_gone"),
    [
        ("a.b <= 3", "a.b <= 5", True),
        ("a.b <= 3", "a.b >= 3", False),
        ("a.b == 'x'", "a.b in ['x', 'y']", True),
        ("a.b == c.d", "a.b == c.e", False),
        ("a.b == 'x'", "a.c == 'x'", False),
        ("given(a)", "given( a )", True),
    ],
)
def test_a_check_with_other_values_is_the_same(text: str, check: str, is_gone: bool) -> None:
    routine = {"name": "x", "steps": [{"id": "a", "type": "assert", "check": check}]}
    assert (not with_struck(routine, [text])["steps"]) is is_gone


@pytest.mark.parametrize(
    ("reason", "check"),
    [
        (Reason(step_id="few[2]", check="line.count <= 3"), "few"),
        (Reason(step_id="found", check="order.pay.kind", recorded={"const": "card"}, now="x"),
         "found.pay.kind"),
        (Reason(step_id="found", check="order.lines[4]", recorded={"required": ["name"]}, now={}),
         "found.lines[].name"),
        (Reason(step_id="found", check="order.lines", recorded={"minItems": 1}, now=[]),
         "found.lines.*"),
        (Reason(step_id="input", check="input.email"), None),
    ],
)  # fmt: skip
def test_the_check_of_a_hand_over_is_found(reason: Reason, check: str | None) -> None:
    assert [one.id for one in checks_of_reason(NESTED, reason)] == ([check] if check else [])
