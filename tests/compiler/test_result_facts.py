"""The result of a write is a record like any other: what all traces saw must be so again."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from em.compiler.compile_trace import compile_several
from em.compiler.expectations import expectations
from em.compiler.export.python import export_python
from em.compiler.package_files import write_package
from em.compiler.result_facts import holding
from em.memory import Memory
from em.runner.engine import run_routine
from em.runner.package import Package
from em.runner.run import RunResult, UnexpectedResult
from em.traces.recorder import recorded_tool
from em.traces.trace import KeptTrace, Mission, ToolCall, Trace

NOW = datetime(2026, 11, 15, tzinfo=UTC)


def call(result: Any, **args: Any) -> ToolCall:
    return ToolCall(tool="act", args=args, result=result, effect="write")


def is_expected(calls: Sequence[ToolCall], now: ToolCall) -> bool:
    found = expectations(calls[0], calls[1:])
    return len(holding(found, [now])) == len(found)


KEYS = ("K-118", "K-274", "K-391", "K-405")
"""Keys of lockers that were given out, each with a drawer."""
DRAWERS = (3, 7, 5, 2)


def handed_out(result: Callable[[str, int], Any]) -> list[ToolCall]:
    return [
        call(result(key, drawer), key=key, drawer=drawer)
        for key, drawer in zip(KEYS, DRAWERS, strict=True)
    ]


@pytest.mark.parametrize(("result", "wrong"), [
    (lambda key, drawer: {"key": key, "drawer": drawer}, {"key": "K-999", "drawer": 4}),
    (lambda key, drawer: {"key": key, "drawer": drawer}, {"key": "K-512", "drawer": 9}),
    (lambda key, drawer: {"key": key, "drawer": drawer}, {"key": "K-512", "drawer": None}),
    (lambda key, _: {"key": key}, {"key": "K-512", "warning": "kept for later"}),
    (lambda _, __: {"data": {"loan": {"state": "out"}}}, {"data": {"loan": {"state": "refused"}}}),
    (lambda key, _: {"receipt": f"L{key}"}, {"receipt": "VOID"}),
    (lambda key, _: {"receipt": f"L{key}"}, {"receipt": ""}),
    (lambda _, __: 1, 0),
    (lambda _, __: {"changed": 1}, {"changed": 40}),
    (lambda _, __: {"code": 200}, {"code": 500}),
    (lambda _, __: {"message": "Key handed out"}, {"message": "Nobody was there"}),
    (lambda key, drawer: f"Took {key} from drawer {drawer}", "Took K-512 from drawer 8"),
    (lambda key, _: f"Took {key}", "Taking K-512 must be agreed by a second person"),
    (lambda key, drawer: f'{{"key": "{key}", "drawer": {drawer}}}', '{"key": "K-9", "drawer": 4}'),
])  # fmt: skip
def test_a_result_that_says_something_else_than_all_recorded_ones_is_not_expected(
    result: Callable[[str, int], Any], wrong: Any
) -> None:
    calls = handed_out(result)
    assert is_expected(calls, call(result("K-512", 4), key="K-512", drawer=4)), "another task"
    assert not is_expected(calls, call(wrong, key="K-512", drawer=4))


def test_as_many_are_done_as_were_asked_for() -> None:
    lists = [["a1"], ["b1", "b2"], ["c1", "c2", "c3"], ["d1", "d2"]]
    counted = [call({"enrolled": len(one)}, people=one) for one in lists]
    assert is_expected(counted, call({"enrolled": 3}, people=["x1", "x2", "x3"]))
    assert not is_expected(counted, call({"enrolled": 2}, people=["x1", "x2", "x3"]))
    listed = [call({"enrolled": sorted(one, reverse=True)}, people=one) for one in lists]
    assert is_expected(listed, call({"enrolled": ["x1", "x2"]}, people=["x1", "x2"])), "any order"
    assert not is_expected(listed, call({"enrolled": ["x1", "x9"]}, people=["x1", "x2"]))


def test_what_may_be_recorded_or_repeated_may_be_either() -> None:
    calls = [call({"shelf": "B", "hot": False}, shelf="B", hot=False, at=n) for n in range(3)]
    assert is_expected(calls, call({"shelf": "B", "hot": False}, shelf="B", hot=False, at=9))
    assert is_expected(calls, call({"shelf": "C", "hot": True}, shelf="C", hot=True, at=9))
    assert not is_expected(calls, call({"shelf": "A", "hot": False}, shelf="B", hot=False, at=9))


@pytest.mark.parametrize(("seen", "now"), [
    ([{"made_at": "2026-11-15", "n": 1}] * 4, {"made_at": "2027-02-01", "n": 1}),
    ([{"ticket_id": 1}] * 4, {"ticket_id": 2}),
    ([{"text": "Done on 2026-11-15"}] * 4, {"text": "Done on 2027-02-01"}),
    ([{"difference": one} for one in (4.5, 7.0, 1.25, 9.0)], {"difference": -3.5}),
    ([{"left": one} for one in range(12, 0, -1)], {"left": 0}),
    (["Ana said hello", "Bo said no", "Cy said maybe"], "Di said never"),
    (["The oven is on.\nKitchen: bright"] * 4, "The oven is on.\nKitchen: dark"),
    ([{"note": "red roof"}, {"note": "old door"}, {"note": "wet floor"}], {"note": "new lamp"}),
    ([{"address": {"city": "Bonn", "zip": "53111"}}] * 3, {"address": {"city": "Ulm", "zip": "x"}}),
    ([{"token": "[redacted:token]"}] * 3, {"token": "s3cr3t"}),
])  # fmt: skip
def test_what_another_task_may_change_is_left_open(seen: Sequence[Any], now: Any) -> None:
    calls = [call(one, of=f"task-{number}") for number, one in enumerate(seen)]
    assert is_expected(calls, call(now, of="task-77"))


def test_members_of_a_list_in_a_result_are_as_all_recorded_ones() -> None:
    calls = [call({"lines": [{"ok": True}]}, of=f"task-{number}") for number in range(5)]
    assert is_expected(calls, call({"lines": [{"ok": True}]}, of="task-77"))
    assert not is_expected(calls, call({"lines": [{"ok": False}]}, of="task-77"))


def test_what_members_of_few_lists_have_says_nothing_of_others() -> None:
    cards = [{"kind": "card", "brand": "x", "last": "12"}]
    calls = [call({"cards": cards, "zip": str(n)}, zip=str(n)) for n in range(53111, 53116)]
    other = [{"kind": "voucher", "left": 20}]
    assert is_expected(calls, call({"cards": other, "zip": "80331"}, zip="80331"))


def test_a_single_recording_shows_what_repeats_an_id() -> None:
    once = [call({"object": "OBJ-1071", "room": "4"}, object="OBJ-1071", room="4")]
    assert is_expected(once, call({"object": "OBJ-2210", "room": "5"}, object="OBJ-2210", room="5"))
    assert not is_expected(
        once, call({"object": "OBJ-1071", "room": "5"}, object="OBJ-2210", room="5")
    )


def test_a_call_that_never_returned_anything_returns_nothing_where_results_were_recorded() -> None:
    void, read = [call(None, of=one) for one in KEYS], call({"state": "free"})
    assert expectations(void[0], void[1:]) == [], "perhaps nobody recorded results"
    assert expectations(void[0], void[1:], beside=[*void]) == []
    found = expectations(void[0], void[1:], beside=[*void, read])
    assert len(holding(found, [call(None)])) == len(found)
    assert len(holding(found, [call("limit exceeded")])) < len(found)


# --- runs -----------------------------------------------------------------------------------------

PHRASES = (
    "Hand out {} from drawer {}.",
    "Please hand out {} from drawer {}.",
    "Could you hand out {} from drawer {}?",
    "I want to hand out {} from drawer {}.",
)


class Desk:
    """A desk that hands out keys of lockers and notes each of them."""

    def __init__(self, folder: Path, phrases: Sequence[str], *, notes: bool) -> None:
        self.done: list[str] = []
        self.answer: Any = None

        @recorded_tool(effect="read")
        def get_key(key: str) -> Any:
            return {"key": key, "state": "free"}

        @recorded_tool(effect="write")
        def hand_out(key: str, drawer: int) -> Any:
            self.done.append(f"hand_out {key} {drawer}")
            return self.answer or {"key": key, "drawer": drawer}

        @recorded_tool(effect="write")
        def note_key(key: str) -> Any:
            self.done.append(f"note_key {key}")
            return {"noted": True}

        self.tools = {"get_key": get_key, "hand_out": hand_out, "note_key": note_key}
        self.memory = Memory(folder / "memory.db")
        given: list[Any] = []

        @self.memory.record(app="desk")
        def agent(_request: str) -> None:
            key, drawer = given
            get_key(key)
            hand_out(key, drawer)
            if notes:
                note_key(key)

        for phrase, key, drawer in zip(phrases, KEYS, DRAWERS, strict=True):
            given[:] = key, drawer
            agent(phrase.format(key, drawer))
        self.routine = self.memory.compile([one.id for one in self.memory.traces()], name="desk")

    def run(self, answer: Any = None) -> RunResult:
        self.done.clear()
        self.answer = answer
        request = {"request": PHRASES[0].format("K-512", 4)}
        return self.memory.run(self.routine, request, self.tools, remember=False)


@pytest.mark.parametrize("is_template", [False, True], ids=["words", "template"])
def test_a_run_stops_after_an_odd_result_and_says_what_was_done(
    tmp_path: Path, is_template: bool
) -> None:
    desk = Desk(tmp_path, [PHRASES[0]] * 4 if is_template else PHRASES, notes=is_template)
    assert desk.run().status == "ok"
    assert desk.done == ["hand_out K-512 4", *(["note_key K-512"] if is_template else [])]
    for odd in (
        {"key": "K-118", "drawer": 4},
        {"key": "K-512", "drawer": 6},
        {"key": "K-512", "drawer": 4, "skipped": True},
    ):
        ended = desk.run(odd)
        assert (ended.status, desk.done) == ("failed", ["hand_out K-512 4"]), odd
        assert ended.failure is not None
        assert ended.failure.error_type == UnexpectedResult.__name__
        assert ended.failure.context["done"] == ["hand_out"]
        assert "these effects were made: hand_out" in ended.failure.message
        assert "Nothing was done after it" in ended.failure.message


def test_a_script_compares_what_a_call_returned_with_what_it_was_given(tmp_path: Path) -> None:
    made = [
        Trace(
            mission=Mission(goal="hand out", input_summary={"key": key, "drawer": drawer}),
            events=[
                ToolCall(
                    tool="hand_out",
                    args={"key": key, "drawer": drawer},
                    result={"key": key, "drawer": drawer},
                    effect="write",
                )
            ],
            outcome="success",
        )
        for key, drawer in zip(KEYS, DRAWERS, strict=True)
    ]
    kept = [
        KeptTrace(id=str(number), at=NOW, trace=one, event_ids=[])
        for number, one in enumerate(made)
    ]
    made_of_steps = compile_several(kept, may_be_plain=False).draft
    write_package(made_of_steps, tmp_path / "desk")
    script: dict[str, Any] = {"__name__": "desk"}
    exec(export_python(Package(tmp_path / "desk")), script)
    given = {"key": "K-512", "drawer": 4}
    right = {"hand_out": lambda key, drawer: {"key": key, "drawer": drawer}}
    wrong = {"hand_out": lambda key, drawer: {"key": "K-118", "drawer": drawer}}
    assert run_routine(tmp_path / "desk", given, right).status == "ok"
    assert run_routine(tmp_path / "desk", given, wrong).status == "failed"
    script["run"](given, right)
    with pytest.raises(Exception, match="the call was made and returned"):
        script["run"](given, wrong)


def test_a_tool_may_change_the_list_that_it_is_given(tmp_path: Path) -> None:
    (tmp_path / "routine.yaml").write_text("""
version: "1"
name: enrol
tools: [{name: enrol, effect: write}]
steps:
  - {id: enrol, type: tool.call, tool: enrol, args: {people: "{{ people }}"},
     expects: ["result.enrolled == len(given.people)"]}
""")

    def enrol(people: list[str]) -> Any:
        count = len(people)
        people.clear()
        return {"enrolled": count}

    assert run_routine(tmp_path, {"people": ["a", "b"]}, {"enrol": enrol}).status == "ok"


LOAN = """
version: "1"
name: change_loan
tools: [{name: pay, effect: write}, {name: move, effect: write}]
steps:
  - {id: pay, type: tool.call, tool: pay, args: {loan: "{{ loan }}"},
     expects: ['strange_fields(result, {"paid.*.by": ["card", "refund"]}) == none']}
  - {id: move, type: tool.call, tool: move, args: {loan: "{{ other }}"},
     expects: ['strange_fields(result, {"paid.*.by": ["card"], "shelf": ["A"]}) == none']}
"""


@pytest.mark.parametrize(("other", "moved", "status"), [
    ("L1", {"paid": [{"by": "card"}, {"by": "refund"}], "shelf": "A"}, "ok"),
    ("L1", {"paid": [{"by": "card"}, {"by": "refund"}], "shelf": "B"}, "failed"),
    ("L1", {"paid": [{"by": "refund"}], "shelf": "A"}, "failed"),
    ("L1", {"paid": [{"by": "card"}, {"by": "refund"}], "shelf": "A", "note": "?"}, "failed"),
    ("L2", {"paid": [{"by": "card"}, {"by": "refund"}], "shelf": "A"}, "failed"),
])  # fmt: skip
def test_what_an_earlier_effect_left_in_a_record_does_not_end_the_run_half_way(
    tmp_path: Path, other: str, moved: dict[str, Any], status: str
) -> None:
    (tmp_path / "routine.yaml").write_text(LOAN)
    tools = {
        "pay": lambda loan: {
            "loan_id": loan, "paid": [{"by": "card"}, {"by": "refund"}], "shelf": "A",
        },
        "move": lambda loan: {"loan_id": loan, **moved},
    }  # fmt: skip
    assert run_routine(tmp_path, {"loan": "L1", "other": other}, tools).status == status
