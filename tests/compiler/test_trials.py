"""What is learnt from traces is tried on others, also where lists have another order."""

from em.compiler.calls import calls_of
from em.compiler.homes import Example
from em.compiler.trials import tried
from em.runner.task_plan import Effect, Plan, Read, Slot
from em.traces.trace import Mission, ToolCall, Trace

BILLS = [{"id": "B-7101"}, {"id": "B-7102"}]


def paid(bill: str) -> Example:
    events = [
        ToolCall(tool="list_bills", args={}, result=BILLS, effect="read"),
        ToolCall(tool="pay", args={"bill": bill}, result={"ok": True}, effect="write"),
    ]
    calls, _ = calls_of(Trace(mission=Mission(goal="pay"), events=events), {})
    return Example(calls, "Please pay.")


def paying(bill: str) -> Plan:
    return Plan(
        effects={"pay": Effect(tool="pay", words=["pay"], slots={"bill": Slot(default=[bill])})},
        reads={"bills": [Read(tool="list_bills")]},
    )


def test_a_plan_that_relies_on_the_order_of_a_list_is_wrong() -> None:
    verdict, reason = tried(paying("bills()[0].id"), paid("B-7101"))
    assert verdict == "wrong"
    assert reason.startswith("with another order of lists it would do")


def test_a_plan_that_finds_the_record_in_any_order_is_right() -> None:
    assert tried(paying('"B-7102"'), paid("B-7102")) == ("right", "")
