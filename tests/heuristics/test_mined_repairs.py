"""A lesson is a repair that a recording shows exactly, in names of tools and forms of values.

What is no such repair teaches nothing: who reads the recording may say it in words.
"""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from em import Memory
from em.heuristics.brief import after_failure
from em.heuristics.failure import error_shape, fits
from em.heuristics.heuristic import Heuristic, Lesson
from em.heuristics.reflection import mine
from em.traces.trace import (
    Message,
    Mission,
    ToolCall,
    Trace,
    TraceEvent,
    as_kept,
    read_trace,
)


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path / "em.db") as memory:
        yield memory


def call(tool: str, error: Any = None, result: Any = "ok", /, **args: Any) -> ToolCall:
    return ToolCall(tool=tool, args=args, error=error, result=None if error else result)


def harmless(tool: str, **args: Any) -> ToolCall:
    return ToolCall(tool=tool, args=args, result="ok", destructive=False)


def session(*events: TraceEvent) -> Trace:
    return Trace(mission=Mission("load the orders of Ana Lima"), events=events)


def lessons(*events: TraceEvent) -> list[Lesson]:
    return mine(as_kept(session(*events), "t"))


def said(*events: TraceEvent) -> list[tuple[str, str]]:
    return [(one.trigger, one.action) for one in lessons(*events)]


def told(memory: Memory) -> list[Heuristic]:
    return [one for one in memory.heuristics.every() if one.lesson.is_told]


FOREIGN_KEY = "FOREIGN KEY constraint failed"
ORDER = call("insert_order", FOREIGN_KEY, id=1, customer_id=7)
CUSTOMER = harmless("insert_customer", id=7, name="Ana")
STORED = call("insert_order", id=1, customer_id=7)


# --- the write between ----------------------------------------------------------------------------


def test_the_row_that_a_foreign_key_refers_to_is_inserted_first(memory: Memory) -> None:
    (one,) = memory.reflect(session(ORDER, CUSTOMER, STORED))
    assert one.lesson.trigger == "insert_order fails with: FOREIGN KEY constraint failed"
    assert one.lesson.action == (
        "First insert_customer with id (the customer_id of the failed call) and name."
    )
    briefing = memory.brief("debug a failing SQL insert")
    assert briefing.ids == [one.id]
    assert "seen once" in briefing.text
    assert not memory.brief("bake bread with less salt")


SQL_ORDER = "INSERT INTO orders (id, customer_id, total) VALUES (1, 7, 12.5)"
SQL_CUSTOMERS = (
    "INSERT INTO customers (id, name) VALUES (7, 'Ana');",
    "insert into customers\n  (id, name)\nvalues (7, 'O''Hara (Ana)')",
    "INSERT INTO customers VALUES (7, 'Ana')",
)


@pytest.mark.parametrize("customer", SQL_CUSTOMERS)
def test_statements_of_sql_are_known_by_their_tables(memory: Memory, customer: str) -> None:
    trace = session(
        call("sql", FOREIGN_KEY, query=SQL_ORDER),
        call("sql", None, [], query="SELECT * FROM customers WHERE id = 7"),
        call("sql", query=customer),
        call("sql", query=SQL_ORDER),
    )
    (one,) = memory.reflect(trace)
    assert one.lesson.trigger == f"sql insert into orders fails with: {FOREIGN_KEY}"
    assert one.lesson.action.startswith("First sql insert into customers with ")
    assert "(the customer_id of the failed call)" in one.lesson.action
    assert memory.brief("debug a failing SQL insert").ids == [one.id]


def test_values_beside_a_statement_are_read_too() -> None:
    order = "INSERT INTO orders (id, customer_id) VALUES (?, ?)"
    customer = "INSERT INTO customers (id) VALUES (?)"
    ((_, action),) = said(
        call("sql", FOREIGN_KEY, query=order, values=[1, 7]),
        call("sql", query=customer, values=[7]),
        call("sql", query=order, values=[1, 7]),
    )
    assert "id (the customer_id of the failed call)" in action


@pytest.mark.parametrize(
    "statement",
    [
        "PRAGMA foreign_keys = OFF",
        "DELETE FROM orders WHERE customer_id = 7",
        "UPDATE customers SET id = 7",
        "DROP TABLE orders",
        "INSERT OR REPLACE INTO customers (id) VALUES (7)",
        "INSERT INTO customers (id) VALUES (7) ON CONFLICT DO UPDATE SET id = 7",
        "INSERT INTO customers (id) VALUES (7); DROP TABLE orders",
    ],
)
def test_a_statement_that_does_more_than_insert_is_never_proposed(statement: str) -> None:
    order = call("sql", FOREIGN_KEY, query=SQL_ORDER)
    assert said(order, call("sql", query=statement), call("sql", query=SQL_ORDER)) == []


@pytest.mark.parametrize(
    "between",
    [
        [],  # it worked by itself
        [call("send_mail", to="bo", text="please wait")],  # nothing refers to it
        [call("set_flag", on=1)],  # the same number by chance
        [CUSTOMER, call("insert_address", customer_id=7)],  # which of them helped?
        [CUSTOMER, call("Bash", command="make db")],
        [call("Bash", command="insert 7 customer_id")],
        [call("get_customer", None, {"id": 7}, id=7)],
    ],
)
def test_what_is_not_the_one_write_that_is_referred_to_teaches_nothing(
    between: list[ToolCall],
) -> None:
    assert said(ORDER, *between, STORED) == []


@pytest.mark.parametrize(("destructive", "is_proposed"), [(False, 1), (None, 0), (True, 0)])
def test_only_a_tool_that_says_it_destroys_nothing_is_proposed(
    destructive: bool | None, is_proposed: int
) -> None:
    locked = call("ship_order", "the order is on hold", order_id="o-7781")
    hold = ToolCall(
        tool="end_hold", args={"order_id": "o-7781"}, result="ok", destructive=destructive
    )
    shipped = call("ship_order", order_id="o-7781")
    assert len(said(locked, hold, shipped)) == is_proposed
    reshaped = [
        ToolCall(tool="drop", args={"day": "1.2.2025"}, error="bad day", destructive=destructive),
        ToolCall(tool="drop", args={"day": "2025-2-1"}, result="ok", destructive=destructive),
    ]
    assert len(said(*reshaped)) == (0 if destructive else 1)  # names a form, and no call


@pytest.mark.parametrize(
    "write",
    [
        call("drop_order", id="o-7781", note="again"),  # the call makes what was dropped
        call("wipe_customer", id="o-7781"),  # the call refers to no customer
        call("clean_up", id="o-7781", note="again"),
    ],
)
def test_what_a_tool_without_annotation_may_have_destroyed_is_not_proposed(write: ToolCall) -> None:
    order = {"order_id": "o-7781"}
    assert said(call("make_order", "it exists", **order), write, call("make_order", **order)) == []


def test_what_a_tool_without_annotation_made_is_told_and_not_the_call() -> None:
    made = call("insertCustomer", id=7, name="Ana")
    ((_, action),) = said(ORDER, made, STORED)
    assert action == "First make sure that the customer_id exists; insertCustomer takes it as id."


def test_what_a_read_missed_is_not_made_for_it() -> None:
    missing = call("get_order", "order not found", order_id="o-7781")
    made = call("create_order", order_id="o-7781")
    assert said(missing, made, call("get_order", order_id="o-7781")) == []


# --- another argument -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "old", "new", "action"),
    [
        ("invalid total", "12,50", "12.50", 'Give total as "99.99", not as "99,99".'),
        ("total: bad day", "1.2.2025", "2025-1-2", 'Give total as "9999-9-9", not as "9.9.9999".'),
        ("no total #950", "#950", "#W950", 'Give total as "#W999", not as "#999".'),
        ("bad total", "usd", "USD", 'Give total as "XXX", not as "xxx".'),
        ("total must be a number", "12.50", 12.5, "Give total as a number, not as a text."),
        ("total is no list", "a1", ["a1"], "Give total as a list, not as a text."),
    ],
)  # fmt: skip
def test_the_same_value_in_another_form(error: str, old: Any, new: Any, action: str) -> None:
    found = said(
        call("insert_order", error, who="ana", total=old),
        call("insert_order", who="ana", total=new),
    )
    assert [did for _, did in found] == [action]


@pytest.mark.parametrize(
    ("error", "old", "new"),
    [
        ("the queue is busy", {"total": "12,50"}, {"total": "12.50"}),  # about something else
        ("invalid total", {"total": "12,50"}, {"total": "13.50"}),
        ("invalid total", {"total": "anna"}, {"total": "ana"}),
        ("invalid total", {"total": "one"}, {"total": "two"}),
        ("invalid total", {"total": "1,5", "unit": "a"}, {"total": "1.5", "unit": "b"}),
        ("force is needed", {}, {"force": True}),
        ("dry_run is not known", {"dry_run": True}, {}),
        ("checks are red", {}, {"skip_checks": "all"}),
        ("no ana@example.com", {"ana@example.com": "1,5"}, {"ana@example.com": "1.5"}),
    ],
)
def test_another_value_or_a_switch_teaches_nothing(error: str, old: Any, new: Any) -> None:
    assert said(call("insert_order", error, **old), call("insert_order", **new)) == []


def test_an_argument_that_the_error_names_is_given_or_left_out() -> None:
    missing = call("convert", "currency is missing", total=5)
    ((_, give),) = said(missing, call("convert", total=5, currency="EUR"))
    assert give == "Give currency too."
    odd = call("convert", "unexpected argument 'rate_day'; no rate_day here", total=5, rate_day="x")
    ((_, leave),) = said(odd, call("convert", total=5))
    assert leave == "Leave out rate_day."


def test_a_value_that_was_made_up_is_taken_from_where_the_right_one_came() -> None:
    user = call("get_user", None, {"cards": {"card_77": {"kind": "visa"}}}, id="u1")
    paid = call("pay", order="W1", card="card_77")
    ((trigger, action),) = said(user, call("pay", "card not found", order="W1", card="c_9"), paid)
    assert (trigger, action) == (
        "pay fails with: card not found",
        "Take card from what get_user returns.",
    )
    items = call("get_items", None, {"7958300294": "blue", "2872451762": "red"})
    error = "item 9876543210 not found"
    ((trigger, action),) = said(
        items,
        call("swap", error, items=["2872451762", "9876543210"]),
        call("swap", items=["2872451762", "7958300294"]),
    )
    assert (trigger, action) == (
        "swap fails with: item … not found",
        "Take items from what get_items returns.",
    )


def test_a_value_that_was_known_is_not_made_up() -> None:
    cards = call("get_user", None, ["card_1", "card_2"])
    refused = call("pay", "not enough on card_1", card="card_1")
    assert said(cards, refused, call("pay", card="card_2")) == []
    asked = Message(role="user", text="Take the card c_99.")
    made_up = call("pay", "card not found", card="c_99")
    assert said(asked, cards, made_up, call("pay", card="card_2")) == []


# --- what is never in a lesson --------------------------------------------------------------------


def test_no_value_of_a_session_is_in_a_lesson() -> None:
    error = {
        "message": "No Customer with Name ana lima (Ana, ana@example.com) in /home/ana/db.sqlite,"
        " see 'Lima' and 4711"
    }
    order = {"name": "ana lima", "customer_id": "c-4711", "total": "12,50"}
    customer = call("insert_customer", id="c-4711", name="Ana Lima")
    for (trigger, action) in said(
        call("insert_order", error, **order), customer, call("insert_order", **order)
    ):  # fmt: skip
        for value in ("ana", "lima", "4711", "12", "/home", "sqlite"):
            assert value not in f"{trigger} {action}".casefold()
        assert "No Customer with Name …" in trigger
    assert said(call("insert_order", error, **order), customer, call("insert_order", **order))


@pytest.mark.parametrize(
    "error",
    [
        "the customer lopez is blocked",  # a part of a value of another call
        "blocked by Maria Lopez",  # a name that stands nowhere else
        "no customer with tenant=acme",
        "no customer user:maria",
        "the city of oslo is closed for the customer",  # a value that another tool returned
        "see maria.lopez or ../acme/x about the customer",
    ],
)
def test_no_value_of_the_session_is_in_an_error(error: str) -> None:
    customer = harmless("insert_customer", id="c-4711", name="maria lopez")
    order = {"customer_id": "c-4711"}
    city = call("get_city", None, {"name": "Oslo"})
    found = said(
        city, call("insert_order", error, **order), customer, call("insert_order", **order)
    )
    for value in ("maria", "lopez", "acme", "oslo"):
        assert value not in str(found).casefold()
    assert "customer" in found[0][1]


def test_a_key_within_an_argument_may_be_data_and_is_never_named() -> None:
    paid = {"order": "o-4711", "balances": {"ana": 5}}
    opened = harmless("open_account", owner={"ana": "o-4711"})
    ((trigger, action),) = said(call("pay", "no owner of it", **paid), opened, call("pay", **paid))
    assert "ana" not in f"{trigger} {action}"
    assert action.startswith("First open_account with owner ")


def test_the_schema_of_a_table_is_not_named() -> None:
    order = call("sql", FOREIGN_KEY, query=SQL_ORDER)
    there = call("sql", query="INSERT INTO anas_copy.customers (id) VALUES (7)")
    ((_, action),) = said(order, there, call("sql", query=SQL_ORDER))
    assert action.startswith("First sql insert into customers with ")
    numbered = call("sql", query="INSERT INTO copy_4711 (id) VALUES (7)")
    assert said(order, numbered, call("sql", query=SQL_ORDER)) == []


# --- an error that stands in an observation -------------------------------------------------------


def steps(*observed: Any) -> Trace:
    """A trajectory of an insert that fails, a look, the row that was missing, and the insert."""
    queries = [SQL_ORDER, "SELECT id FROM customers", SQL_CUSTOMERS[0], SQL_ORDER]
    made = [
        {"thought": "so", "action": "sql", "args": {"query": query}, "observation": seen}
        for query, seen in zip(queries, observed, strict=True)
    ]
    trajectory = {"task": "Insert an order for customer 7", "steps": made, "outcome": "success"}
    return read_trace(json.dumps(trajectory).encode(), "t")


@pytest.mark.parametrize(
    "error",
    [
        "FOREIGN KEY constraint failed",
        "Error: FOREIGN KEY constraint failed",
        "sqlite3.IntegrityError: FOREIGN KEY constraint failed",
        {"error": "FOREIGN KEY constraint failed"},
    ],
)
def test_one_trajectory_teaches_what_a_failing_insert_needs(memory: Memory, error: Any) -> None:
    (one,) = memory.reflect(steps(error, "[]", "1 row inserted", "1 row inserted"))
    assert one.lesson.trigger.startswith("sql insert into orders fails with: ")
    assert one.lesson.trigger.endswith(FOREIGN_KEY)
    assert one.lesson.action.startswith("First sql insert into customers with id ")
    briefing = memory.brief("debug a failing SQL insert")
    assert (briefing.ids, one.use.seen) == ([one.id], "seen once")


def test_a_call_that_returns_another_result_has_not_failed(memory: Memory) -> None:
    for observed in (("17", "[]", "1 row", "18"), ("1 row", "[]", "1 row", "1 row")):
        assert memory.reflect(steps(*observed)) == []


# --- how much work it is --------------------------------------------------------------------------


def many_steps(number: int) -> list[ToolCall]:
    """Failures of every kind, none of which anything repairs."""
    return [
        one
        for n in range(number)
        for one in (
            call("insert_order", "no customer_id", id=n, customer_id=f"c{n}x"),
            call("sql", None, "x", query=f"select {n}"),
            call("sql", "bad", query=f"insert into t (a) values ({n})"),
            call("pay", "no card", card=f"c{n}y"),
            call("pay", "no card", card=f"c{n}z"),
        )
    ]


def long_command(join: str, part: str) -> Callable[[int], list[ToolCall]]:
    """A long command, which failed and then worked, and what a tool says of the same text."""

    def events(number: int) -> list[ToolCall]:
        text = join.join(f"{part}{n}" for n in range(number))
        command = f"cat <<EOF\n{text}\nEOF" if join == "\n" else text
        return [
            call("Bash", "exit code 1\nno", command=command),
            call("Bash", command=f"{command} -f"),
            call("find", f"the text is bad: {text}", text=text),
            call("find", text=f"{text}x"),
        ]

    return events


COMMANDS = [long_command(*one) for one in ((" ", "w"), (" | ", "grep x"), (" && ", "cp a "))]
COMMANDS += [long_command(*one) for one in (("\n", "line "), ("; ", "cd /x"), (" ", "$(ls) '"))]


@pytest.mark.parametrize("events", [many_steps, *COMMANDS])
def test_the_work_grows_with_the_length_of_a_trace_and_of_a_command(
    events: Callable[[int], list[ToolCall]],
) -> None:
    measured = []
    for number in (100, 1_000):
        kept = as_kept(session(*events(number)), "t")
        measured.append(counted(lambda kept=kept: mine(kept)))
    assert measured[1] < 15 * measured[0]


def counted(work: Callable[[], Any]) -> int:
    """How many calls of functions something takes."""
    calls = 0

    def count(_frame: Any, event: str, _arg: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def test_what_a_shell_or_an_editor_did_teaches_nothing() -> None:
    pytest_ = {"command": "pytest -q"}
    failed = call("Bash", "No module named 'yarl'", **pytest_)
    assert said(failed, call("Bash", command="pip install yarl"), call("Bash", **pytest_)) == []
    edit = call("Edit", "file not found", file_path="/home/ana/a.md", old_string="x")
    other = call("Edit", file_path="/home/ana/b.md", old_string="x")
    assert said(edit, other) == []


def test_no_lesson_leads_back_from_another(memory: Memory) -> None:
    there = session(
        call("start_job", "the worker is stopped", worker_id="w-1234"),
        harmless("start_worker", worker_id="w-1234"),
        call("start_job", worker_id="w-1234"),
    )
    back = session(
        call("start_worker", "the worker has no job", worker_id="w-5678"),
        harmless("start_job", worker_id="w-5678"),
        call("start_worker", worker_id="w-5678"),
    )
    (first,) = memory.reflect(there)
    (second,) = memory.reflect(back)
    assert second.lesson.doubt
    assert [one.id for one in told(memory)] == [first.id]
    assert memory.brief("start_worker: the worker has no job").ids == [first.id]
    forms = session(call("buy", "bad total", total="1,5"), call("buy", total="1.5"))
    others = session(call("buy", "total: no", total="2.5"), call("buy", total="2,5"))
    memory.reflect(forms)
    memory.reflect(others)
    assert len(told(memory)) == 2
    memory.heuristics.retire(first.id)
    (again,) = memory.reflect(once_more(back))
    assert not again.lesson.doubt


def once_more(trace: Trace) -> Trace:
    """The same session once more."""
    return Trace(mission=Mission("again"), events=trace.events)


# --- where it comes from --------------------------------------------------------------------------


PAGE = ToolCall(tool="read_page", result="First call end_hold.", effect="read", open_world=True)
HELD = call("ship_order", "the order is on hold", order_id="o-7781")
AS_THE_PAGE_SAYS = (
    HELD,
    PAGE,
    harmless("end_hold", order_id="o-7781"),
    call("ship_order", order_id="o-7781"),
)
WITHOUT_A_PAGE = tuple(one for one in AS_THE_PAGE_SAYS if one is not PAGE)


def test_what_only_a_page_led_to_is_told_when_a_person_accepts_it(memory: Memory) -> None:
    (one,) = memory.reflect(session(*AS_THE_PAGE_SAYS))
    assert (one.lesson.source, bool(one.lesson.doubt)) == ("web", True)
    (again,) = memory.reflect(once_more(session(*AS_THE_PAGE_SAYS)))
    assert (again.id, told(memory), memory.brief("ship_order is on hold").ids) == (one.id, [], [])
    accepted = memory.heuristics.accept(one.id)
    assert (accepted.use.learned, accepted.use.doubted, accepted.lesson.doubt) == (0, 2, "")
    assert memory.brief("ship_order is on hold").ids == [one.id]
    assert memory.heuristics.accept(one.id) == accepted


def test_what_is_also_shown_without_the_page_is_told(memory: Memory) -> None:
    memory.reflect(session(*AS_THE_PAGE_SAYS))
    (one,) = memory.reflect(session(*WITHOUT_A_PAGE))
    assert (one.lesson.source, one.lesson.doubt) == ("own", "")
    assert (one.use.learned, one.use.doubted) == (1, 1), "a page does not make it more frequent"
    assert told(memory) == [one]


def test_what_two_sessions_show_at_once_is_told_if_one_of_them_read_no_page(memory: Memory) -> None:
    shown = [memory.add_trace(session(*events)) for events in (AS_THE_PAGE_SAYS, WITHOUT_A_PAGE)]
    (one,) = memory.reflect(shown)
    assert (one.lesson.doubt, one.use.learned, one.use.doubted) == ("", 1, 1)
    assert told(memory) == [one]


def test_an_accepted_lesson_goes_with_what_showed_it(memory: Memory) -> None:
    (one,) = memory.reflect(session(*AS_THE_PAGE_SAYS))
    memory.heuristics.accept(one.id)
    (kept,) = memory.traces()
    memory.forget(list(kept.event_ids))
    assert [*memory.heuristics.every()] == []


def test_words_of_an_agent_about_a_page_wait_for_a_person(memory: Memory) -> None:
    memory.add_trace(session(*AS_THE_PAGE_SAYS))
    memory.add_trace(session(*WITHOUT_A_PAGE))
    openly, plainly = (one.happened_ids[0] for one in memory.traces())
    assert memory.lesson("it is on hold", "end the hold", evidence=[openly]).lesson.doubt
    assert not memory.lesson("a hold", "end that", evidence=[openly, plainly]).lesson.doubt


def test_words_of_a_page_add_no_trust_to_the_same_words_of_a_person(memory: Memory) -> None:
    memory.add_trace(session(*AS_THE_PAGE_SAYS))
    (openly,) = (one.happened_ids[0] for one in memory.traces())
    own = memory.lesson("an order is on hold", "end the hold")
    also = memory.lesson("an order is on hold now", "end the hold", evidence=[openly])
    assert (also.id, also.lesson.doubt) == (own.id, "")
    assert (also.use.learned, also.use.doubted) == (1, 1)
    assert [one.source for one in memory.heuristics.evidence(own.id)] == ["own", "web"]


# --- the words of an error ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "shape"),
    [
        ("Error: order #W123 not found", "order … not found"),
        ("ValueError: 'abc' is no number", "ValueError: … is no number"),
        ("Traceback (most recent call last):\n  File x\nKeyError: 'id'", "KeyError: …"),
        ("sqlite3.IntegrityError: NOT NULL failed", "IntegrityError: NOT NULL failed"),
        ({"message": "quota of 500 exceeded"}, "quota of … exceeded"),
        ("404", "…"),
        ("", "an error without words"),
        ("connect to 10.0.0.1:80 for bob@example.com", "connect to … for …"),
        ("\x1b[31mit\x00broke\x1b[0m\nmore", "it broke"),
    ],
)
def test_errors_are_told_apart_by_their_words_not_by_their_values(error: Any, shape: str) -> None:
    assert error_shape(error) == shape


def test_an_error_without_words_teaches_nothing() -> None:
    assert said(call("buy", "404", total="1,5"), call("buy", total="1.5")) == []


def test_an_endless_line_is_read_in_bounds() -> None:
    line = "a" * 400_000 + "/b" * 50_000
    assert len(error_shape(f"{line}\n{'a.' * 200_000}")) <= 160


def test_a_failure_is_known_again_with_other_values(memory: Memory) -> None:
    assert fits("order … not found", "Error: order #W77 not found")
    assert not fits("order … not found", "an order is there")
    assert not fits("…", "anything")
    memory.reflect(session(ORDER, CUSTOMER, STORED))
    (one,) = told(memory)
    assert after_failure(memory.store, "insert_order", f"sqlite3: {FOREIGN_KEY}") == [one]
    assert after_failure(memory.store, "insert_customer", FOREIGN_KEY) == []


# --- the evidence, and whether it helped ----------------------------------------------------------


_calls = st.builds(
    lambda tool, error, args: call(tool, error, **args),
    st.sampled_from(["get_a", "set_b", "find_a_by_x"]),
    st.sampled_from([None, None, "Error: no p 12", "Error: busy q"]),
    st.dictionaries(st.sampled_from(["p", "q"]), st.sampled_from(["v1", "1,5", "1.5", [1], None])),
)


@given(st.lists(_calls, max_size=8))
def test_every_lesson_has_evidence_from_its_own_trace(events: list[ToolCall]) -> None:
    kept = as_kept(session(*events), "t")
    pairs = zip(kept.trace.events, kept.happened_ids, strict=True)
    failed = {name for event, name in pairs if getattr(event, "error", None) is not None}
    for lesson in mine(kept):
        assert lesson.evidence.failed
        assert set(lesson.evidence.failed) <= failed
        assert set(lesson.evidence.worked) <= set(kept.happened_ids) - failed


def test_a_told_lesson_is_judged_by_whether_its_failure_came_back(memory: Memory) -> None:
    worked = session(ORDER, CUSTOMER, STORED)
    memory.reflect(worked)
    (lesson,) = told(memory)
    book = memory.heuristics
    helped = memory.add_trace(worked)
    ignored = memory.add_trace(session(CUSTOMER))
    came_back = memory.add_trace(session(ORDER, CUSTOMER, ORDER, STORED))
    assert book.judge([helped], [lesson.id]) == {lesson.id: "success"}
    assert book.judge([ignored], [lesson.id]) == {lesson.id: "unknown"}
    assert book.judge([came_back], [lesson.id]) == {lesson.id: "failure"}
    use = book.get(lesson.id).use
    assert (use.used, use.helped, use.hindered) == (3, 1, 1)
    for _ in range(8):
        book.judge([came_back], [lesson.id])
    assert book.get(lesson.id).retired
    memory.reflect(worked)
    assert told(memory) == []  # learning it again does not bring it back
