"""What a person says about a routine (inputs, constants, struck checks) and how long it holds."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest

from cancelled_orders import order_of, recording, tools
from em import Memory
from em.compiler.checks import checks_of, general
from em.compiler.compile_trace import compile_several
from em.errors import NotFound, RoutineError
from em.runner.package import KeptRoutine, find_routine, routine_of
from em.runner.routine import Review
from em.traces.catalogue import get_traces
from em.traces.trace import Mission, ToolCall, Trace
from em.values.canonical import Json


@pytest.fixture
def memory() -> Iterator[Memory]:
    with Memory("em.db") as memory:
        yield memory


def stored(memory: Memory, numbers: Sequence[int], **more: Any) -> list[str]:
    return [memory.add_trace({**recording(number), **more}) for number in numbers]


def inputs(routine: KeptRoutine) -> set[str]:
    return {*(routine.input_schema or {})["properties"]}


def documented(memory: Memory, traces: Sequence[str], **said: Any) -> Json:
    made = compile_several(get_traces(memory.store, traces), review=Review(**said))
    return made.draft.document


def args_of(document: Json, tool: str) -> Json:
    (step,) = [one for one in document["steps"] if one.get("tool") == tool]
    found: Json = step["args"]
    return found


ODD = (1, 3)
"""Recordings with the same reason."""


# --- constants ------------------------------------------------------------------------------------


@pytest.mark.parametrize("numbers", [(1,), ODD])
@pytest.mark.parametrize("name", ["reason", "cancel_order.reason"])
def test_an_input_becomes_a_constant(memory: Memory, numbers: Sequence[int], name: str) -> None:
    routine = memory.compile(stored(memory, numbers), name="cancel", constants=[name])
    assert inputs(routine) == {"email", "order_id"}
    assert routine.review == Review(constants=[name])
    done: list[str] = []
    order = order_of(2)
    given = {"email": "u2@example.com", "order_id": "W200"}
    assert memory.run(routine, given, tools(order, done)).status == "ok"
    assert done == ["W200: ordered by mistake, True"]


def test_a_constant_goes_into_reads_and_checks_too(memory: Memory) -> None:
    routine = memory.compile(stored(memory, (1,)), name="cancel", constants=["order_id"])
    assert inputs(routine) == {"email", "reason"}
    done: list[str] = []
    given = {"email": "u2@example.com", "reason": "no longer needed"}
    result = memory.run(routine, given, tools(order_of(2), done))
    assert (result.status, done) == ("needs_input", []), "the order is not one of this user's"
    given["email"] = "u1@example.com"
    assert memory.run(routine, given, tools(order_of(1), done)).status == "ok"
    assert done == ["W100: no longer needed, True"]


def test_the_input_that_gave_an_argument_becomes_the_constant(memory: Memory) -> None:
    document = documented(memory, stored(memory, (1,)), constants=("get_order.order_id",))
    assert args_of(document, "get_order") == {"order_id": "W100"}
    assert args_of(document, "cancel_order")["order_id"] == "W100", "not another one than was read"


def mail(number: int, **more: Any) -> Trace:
    """A mail whose subject only the request has."""
    request = f"Mail user{number}@example.com about Invoices"
    args = {"to": f"user{number}@example.com", "subject": "Invoices", **more}
    call = ToolCall(tool="send_mail", args=args, result={"sent": True}, effect="write")
    return Trace(mission=Mission(request), events=[call], outcome="success")


def test_words_of_the_request_become_a_constant(memory: Memory) -> None:
    traces = [memory.add_trace(mail(number)) for number in (1, 2)]
    assert documented(memory, traces)["input_schema"]["required"] == ["subject", "to"]
    document = documented(memory, traces, constants=("subject",))
    assert document["input_schema"]["required"] == ["to"]
    assert args_of(document, "send_mail")["subject"] == "Invoices"
    assert document["requests"] == ["Mail {to} about Invoices"]


@pytest.mark.parametrize("name", ["label", "set_label.label"])
def test_what_nothing_explains_becomes_a_constant(memory: Memory, name: str) -> None:
    given = {"mail_id": "M-4711"}
    text = "Hello, I can't find the invoice of last month. Could you send it again? Thanks, Ana"
    events = [
        ToolCall(tool="get_mail", args=given, result={**given, "text": text}, effect="read"),
        ToolCall(tool="set_label", args={**given, "label": "billing"}, result="ok", effect="write"),
    ]
    trace = Trace(mission=Mission("Label a mail", given), events=events, outcome="success")
    ids = [memory.add_trace(trace)]
    assert "label" in documented(memory, ids)["input_schema"]["required"]
    document = documented(memory, ids, constants=(name,))
    assert document["input_schema"]["required"] == ["mail_id"]
    assert args_of(document, "set_label")["label"] == "billing"


def test_a_record_becomes_a_constant(memory: Memory) -> None:
    address = {"city": "Porto", "zip": 40011}
    traces = [memory.add_trace(mail(number, address=address)) for number in (1, 2)]
    document = documented(memory, traces, constants=("address",))
    assert args_of(document, "send_mail")["address"] == address
    assert not {"city", "zip", "address"} & {*document["input_schema"]["properties"]}


@pytest.mark.parametrize("name", ["reason", "cancel_order.reason"])
def test_a_constant_that_differed_is_refused_with_what_was_recorded(
    memory: Memory, name: str
) -> None:
    with pytest.raises(RoutineError) as raised:
        memory.compile(stored(memory, (1, 2)), name="cancel", constants=[name])
    assert raised.value.place == "--constant"
    assert all(one in str(raised.value) for one in ("ordered by mistake", "no longer needed"))
    assert not [*memory.store.artefacts("routine", "cancel")]


def test_values_that_differ_in_case_only_are_no_constant(memory: Memory) -> None:
    traces = [memory.add_trace(mail(number, code=code)) for number, code in ((1, "AB"), (2, "ab"))]
    with pytest.raises(RoutineError) as raised:
        documented(memory, traces, constants=("code",))
    assert raised.value.place == "--constant"


def test_an_input_that_one_recording_lacks_is_no_constant(memory: Memory) -> None:
    traces = [memory.add_trace(mail(1, code="AB")), memory.add_trace(mail(2))]
    with pytest.raises(RoutineError) as raised:
        documented(memory, traces, constants=("code",))
    assert raised.value.place == "--constant"


def test_a_secret_is_no_constant(memory: Memory) -> None:
    key = "sk-proj-" + "a1B2c3D4" * 5
    trace = memory.add_trace(mail(1, api_key=key))
    with pytest.raises(RoutineError) as raised:
        documented(memory, [trace], constants=("api_key",))
    assert raised.value.place == "--constant"


# --- inputs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("numbers", [(1,), (1, 2, 3)])
@pytest.mark.parametrize("name", ["notify", "cancel_order.notify"])
def test_a_constant_becomes_an_input(memory: Memory, numbers: Sequence[int], name: str) -> None:
    routine = memory.compile(stored(memory, numbers), name="cancel", inputs=[name])
    assert routine.review == Review(inputs=[name])
    done: list[str] = []
    given = {"email": "u2@example.com", "order_id": "W200", "reason": "no longer needed"}
    result = memory.run(routine, {**given, "notify": False}, tools(order_of(2), done))
    assert (result.status, done) == ("ok", ["W200: no longer needed, False"])


@pytest.mark.parametrize(
    ("said", "place"),
    [({"inputs": ["notfy"]}, "--input"), ({"constants": ["raeson"]}, "--constant")],
)
def test_an_unknown_name_is_refused_with_those_that_are_there(
    memory: Memory, said: Any, place: str
) -> None:
    with pytest.raises(NotFound) as raised:
        memory.compile(stored(memory, (1,)), name="cancel", **said)
    assert raised.value.place == place
    assert "cancel_order.notify" in raised.value.fix


# --- how long it holds ----------------------------------------------------------------------------


def reviewed(memory: Memory) -> KeptRoutine:
    """Return a routine with an input, a constant and a struck check."""
    said: Any = {"inputs": ["notify"], "constants": ["reason"]}
    memory.compile(stored(memory, ODD), name="cancel", **said)
    memory.strike("cancel", "order.channel")
    return memory.compile(stored(memory, (5,)), name="cancel")


def test_compiling_again_keeps_to_it(memory: Memory) -> None:
    reviewed(memory)
    stored(memory, (7,))
    grown = memory.compile_again("cancel")
    assert grown.new, grown.why_not
    routine = routine_of(find_routine(memory.store, grown.new))
    assert routine.review == Review(inputs=["notify"], constants=["reason"])
    assert inputs(routine) == {"email", "order_id", "notify"}
    assert len(routine.struck) == 1


def test_a_recording_that_contradicts_a_constant_is_not_learnt_from(memory: Memory) -> None:
    reviewed(memory)
    stored(memory, (2,))
    grown = memory.compile_again("cancel")
    assert (grown.new, "no longer needed" in grown.why_not) == ("", True)


def test_the_next_version_of_a_name_keeps_to_it(memory: Memory) -> None:
    routine = reviewed(memory)
    assert routine.review == Review(inputs=["notify"], constants=["reason"])
    assert inputs(routine) == {"email", "order_id", "notify"}
    document = msgspec.to_builtins(routine)
    assert "order.channel" not in [one.id for one in checks_of(document)]
    assert "order.status" in [one.id for one in checks_of(document)]
    done: list[str] = []
    given = {"email": "u2@example.com", "order_id": "W200", "notify": True}
    changed = tools(order_of(2, channel="phone"), done)
    assert (memory.run(routine, given, changed).status, len(done)) == ("ok", 1)


def test_a_fresh_version_forgets_it(memory: Memory) -> None:
    reviewed(memory)
    routine = memory.compile(stored(memory, (5,)), name="cancel", fresh=True)
    assert (routine.review, routine.struck) == (Review(), ())
    assert inputs(routine) == {"email", "order_id", "reason"}
    assert "order.channel" in [one.id for one in checks_of(msgspec.to_builtins(routine))]


def test_what_is_said_now_has_precedence(memory: Memory) -> None:
    reviewed(memory)
    said: Any = {"inputs": ["reason"], "constants": ["cancel_order.notify"]}
    routine = memory.compile(stored(memory, (5,)), name="cancel", **said)
    assert routine.review == Review(inputs=["reason"], constants=["cancel_order.notify"])
    assert inputs(routine) == {"email", "order_id", "reason"}


def test_another_name_takes_nothing_over(memory: Memory) -> None:
    reviewed(memory)
    routine = memory.compile(stored(memory, (5,)), name="other")
    assert (routine.review, routine.struck) == (Review(), ())


def test_what_names_nothing_in_the_new_recordings_is_not_taken_over(memory: Memory) -> None:
    reviewed(memory)
    routine = memory.compile(memory.add_trace(mail(1)), name="cancel")
    assert routine.review == Review()


def test_what_is_taken_over_has_no_recorded_value(memory: Memory) -> None:
    """Else it would outlive those it is about: forgetting follows recordings."""
    memory.compile(stored(memory, (1,)), name="cancel")
    memory.strike("cancel", "order.channel")
    routine = memory.compile(stored(memory, (3,)), name="cancel")
    assert routine.struck == ["order.channel is …"]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ('order.status is "pending"', ["order.status is …"]),
        ("order.items has at most 2 elements", ["order.items has …"]),
        ("order is as recorded", ["order is as recorded"]),
        ('order.owner == "ana"', ["order.owner is …"]),
        ("order.total <= 500", ["order.total LtE …"]),
        ('distinct(every(rows, "chosen.id"))', ["distinct(every(rows, 'chosen.id'))"]),
        ('not where(users, name="ana")', []),
        ('"ana" == user.name', []),
    ],
)
def test_a_struck_check_is_taken_over_by_what_it_is_about(text: str, kept: list[str]) -> None:
    assert general([text, text]) == kept
    assert general(kept) == kept


# --- labels ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("numbers", [(1,), (1, 2), (1, 2, 3, 4)])
def test_how_recordings_are_labelled_does_not_change_what_is_learnt(
    memory: Memory, numbers: Sequence[int]
) -> None:
    def learnt(*outcomes: str) -> tuple[str, str]:
        traces = [
            stored(memory, (number,), outcome=outcomes[place % len(outcomes)])[0]
            for place, number in enumerate(numbers)
        ]
        made = compile_several(get_traces(memory.store, traces), name="cancel")
        lines = made.files["routine.yaml"].splitlines()
        return made.draft.outcome, "\n".join(line for line in lines if line[:1] != "#")

    labelled, unlabelled = learnt("success"), learnt("unknown")
    assert (labelled[0], unlabelled[0]) == ("success", "unknown")
    assert labelled[1] == unlabelled[1] == learnt("unknown", "success")[1]
    by_person = stored(memory, numbers, outcome="unknown")
    for trace in by_person:
        memory.label(trace, "success")
    made = compile_several(get_traces(memory.store, by_person), name="cancel")
    assert made.draft.outcome == "success"
    assert made.files["routine.yaml"].strip() == labelled[1].strip()
