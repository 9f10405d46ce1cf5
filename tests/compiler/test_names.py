"""A routine has a name that says what it is for, and that never comes to mean another kind."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from tests.cli.em_command import em

from em import Memory
from em.compiler.compile_trace import compile_several
from em.compiler.kind import is_of_another_kind
from em.runner.package import find_routine, keep_routine, routine_of
from em.traces.catalogue import get_traces
from em.traces.trace import KeptTrace, Message, Mission, ToolCall, Trace, as_kept

BUMP = (
    "Please bump the version of the package to {} in pyproject.toml and write the changelog entry"
)


def session(goal: str, *tools: str, number: int = 1) -> KeptTrace:
    calls = [
        ToolCall(tool=tool, args={argument: f"echo {number} {n}"}, result=f"{number} {n}")
        for n, tool in enumerate(tools)
        for argument in ["cmd" if tool == "exec_command" else "command"]
    ]
    trace = Trace(mission=Mission(goal), events=calls, outcome="success")
    return as_kept(trace, f"trace{number}")


def changed(*files: str, number: int = 1) -> KeptTrace:
    """A session that writes files, and was asked for in words of its own."""
    goal = BUMP.format(f"1.2.{number}")
    events: list[Any] = [Message(role="user", text=goal)]
    for file in files:
        given = {"file_path": f"/srv/{file}"}
        events.append(ToolCall(tool="Read", args=given, result=f"     1→version {number}"))
        given = {**given, "content": f"version 1.2.{number}\n"}
        events.append(ToolCall(tool="Write", args=given, result="updated"))
    trace = Trace(app={"cwd": "/srv"}, mission=Mission(goal), events=events, outcome="success")
    return as_kept(trace, f"trace{number}")


def name_of(*traces: KeptTrace) -> str:
    return compile_several(traces, force=True).draft.routine.name


def test_coding_sessions_are_named_after_what_is_done_with_what_they_changed() -> None:
    files = ("pyproject.toml", "docs/CHANGELOG.md")
    assert name_of(changed(*files), changed(*files, number=2)) == "bump_version_changelog"


REQUESTS = (
    "Please rename the key {} to it",
    "the key {} should be called it, please",
    "rename {} please, Ana",
)


def asked(goal: str, number: int, *names: str) -> KeptTrace:
    """A session that changed a file of keys, asked for so."""
    kept = changed("keys.txt", number=number)
    goal = goal.format(names[0] if names else f"k_{number}")
    said = [Message(role="user", text=goal), *kept.trace.events[1:]]
    trace = msgspec.structs.replace(kept.trace, mission=Mission(goal), events=said)
    return as_kept(trace, f"asked{number}")


def test_courtesies_and_names_of_people_are_no_part_of_a_name() -> None:
    several = [asked(one, number) for number, one in enumerate(REQUESTS, 1)]
    assert name_of(*several) == "rename_key"
    alike = [asked(REQUESTS[0], number) for number in (1, 2, 3)]
    assert name_of(*alike) == "rename_key"


def test_requests_without_a_common_word_leave_the_name_to_the_files() -> None:
    assert name_of(asked("now {}", 1), asked("{}, then", 2)) == "change_keys"


def migrations(*requests: str) -> list[KeptTrace]:
    """Sessions that wrote a migration, asked for so."""
    rows = [("users", "born_on"), ("pets", "chip_id"), ("visits", "paid_at"), ("bills", "due_on")]
    traces = []
    for number, (words, (table, column)) in enumerate(zip(requests, rows, strict=False)):
        goal = words.format(table, column)
        given = {"file_path": "/srv/m.sql", "content": f"ALTER TABLE {table} ADD {column}\n"}
        events = [Message(role="user", text=goal), ToolCall(tool="Write", args=given, result="ok")]
        mission = Mission(goal)
        trace = Trace(app={"cwd": "/srv"}, mission=mission, events=events, outcome="success")
        traces.append(as_kept(trace, f"trace{number}"))
    return traces


def test_inputs_are_named_by_the_word_that_most_prompts_have_before_them() -> None:
    traces = migrations(
        "add the column {1} to {0}", "migration for the table {0}, new column {1}", "{0} needs {1}"
    )
    schema = compile_several(traces, force=True).draft.routine.input_schema or {}
    assert set(schema["properties"]) == {"table", "column"}


def test_what_fewer_recordings_teach_has_inputs_of_the_same_names() -> None:
    # Without one of the first two, as many prompts say `field` as `column`.
    traces = migrations(
        "to {0} add the column {1}",
        "for {0} the column {1}",
        "to {0} with the field {1}",
        "{0}: {1}",
    )
    draft = compile_several(traces).draft
    assert "column" in (draft.routine.input_schema or {})["properties"]
    assert draft.trials.count("right") == len(traces), draft.trials.reasons()


def test_a_routine_that_grows_keeps_the_names_of_its_inputs(memory: Memory) -> None:
    first = ["to {0} add the column {1}", "for {0} the column {1}", "to {0} with the column {1}"]
    later = [one.replace("column", "field") for one in (*first, "{0}: a field {1}")]
    ids = [memory.add_trace(one.trace) for one in migrations(*first)]
    memory.compile(ids, name="migrate")
    for one in migrations(*later):
        memory.add_trace(one.trace)
    grown = memory.compile_again("migrate")
    assert grown.new == "migrate@2", grown.why_not
    schemas = [
        routine_of(find_routine(memory.store, f"migrate@{n}")).input_schema or {} for n in (1, 2)
    ]
    assert set(schemas[1]["properties"]) == set(schemas[0]["properties"]) >= {"column"}


def test_the_file_of_one_session_is_not_in_the_name() -> None:
    assert name_of(changed("letters/ana_silva.md")) == "change_md"


def test_files_that_only_one_session_changed_are_not_in_the_name() -> None:
    one, two = changed("a.md", "log.md"), changed("b.md", "log.md", number=2)
    assert name_of(one, two) == "bump_version"


@pytest.mark.parametrize("last", ["Bash", "exec_command", "TodoWrite", "bash"])
def test_a_session_of_commands_is_named_after_them(last: str) -> None:
    assert name_of(session(BUMP.format("1.2.3"), "Bash", last)) == "echo"


def test_other_routines_are_named_after_all_tools_that_they_write_with() -> None:
    long = "the customer wants to cancel an order that was placed by mistake yesterday"
    assert name_of(session(long, "cancel_order")) == "cancel_order"
    assert name_of(session(long, "get_order", "cancel_order", "notify", "notify")) == (
        "cancel_order_and_notify"
    )
    assert name_of(session(long, "get_weather")) == "get_weather"


def test_a_name_is_no_longer_than_a_model_takes_for_a_tool() -> None:
    tools = [f"{verb}_a_customer_record" for verb in ("change", "check", "close")]
    assert name_of(session("close", *tools)) == f"{tools[0]}_and_{tools[1]}"


@pytest.fixture
def memory() -> Iterator[Memory]:
    with Memory("em.db") as memory:
        yield memory


def done(memory: Memory, number: int, *tools: str) -> str:
    """Store a trace of a task that was done with these tools."""
    order = f"W-{number}71"
    calls = [ToolCall(tool=tool, args={"order": order}, result="ok") for tool in tools]
    events = [Message(role="user", text=f"{tools[0]}: {order}"), *calls]
    return memory.add_trace(Trace(mission=Mission("desk"), events=events, outcome="success"))


def test_a_compilation_without_a_name_replaces_no_routine_of_another_kind(memory: Memory) -> None:
    memory.compile([done(memory, n, "cancel", "notify") for n in range(3)], name="notify")
    ids = [done(memory, n, "notify") for n in range(3)]
    assert memory.compile(ids).ref == "notify_2@1"
    assert memory.compile(ids).ref == "notify_2@1"
    assert memory.compile(done(memory, 4, "cancel", "notify"), name="notify").ref == "notify@2"
    assert memory.compile(done(memory, 5, "notify"), fresh=True).ref == "notify_2@2"


def test_a_routine_that_a_person_wrote_is_not_replaced_either(memory: Memory) -> None:
    text = "name: notify\ntools: [{name: call, effect: write}]\nsteps:\n"
    keep_routine(
        memory.store, {"routine.yaml": f"{text}  - {{id: a, type: tool.call, tool: call}}"}
    )
    assert memory.compile(done(memory, 1, "notify")).ref == "notify_2@1"


def test_kinds_with_the_same_last_write_are_two_routines(memory: Memory) -> None:
    kinds = [("cancel", "notify"), ("refund", "notify")]
    made = [memory.compile([done(memory, n, *kind) for n in range(3)]).ref for kind in kinds]
    assert made == ["cancel_and_notify@1", "refund_and_notify@1"]
    first = memory.match("cancel: W-977")
    assert first is not None
    assert first.routine == made[0]


def test_sessions_that_change_the_same_files_for_another_task_are_another_routine(
    memory: Memory,
) -> None:
    def added(words: str, number: int) -> str:
        return memory.add_trace(asked(f"{words} v1.2.{number}", number).trace)

    memory.compile([added("note the release", n) for n in (1, 2, 3)], name="note")
    other = [added("translate every heading into german", n) for n in (4, 5, 6)]
    traces = get_traces(memory.store, other)
    assert is_of_another_kind(memory.store, "note", traces, {})
    again = get_traces(memory.store, [added("please note the release", 7)])
    assert not is_of_another_kind(memory.store, "note", again, {})


def test_compiling_everything_takes_kinds_with_one_goal_apart(memory: Memory) -> None:
    for number in range(4):
        done(memory, number, "get_order", "cancel", "notify")
        done(memory, number, "get_order", "refund", "notify")
    made = em("compile", "--all", "--json", "--db", "em.db").json
    assert made["failed"] == {}
    assert sorted(made["kept"].values()) == ["cancel_and_notify@1", "refund_and_notify@1"]
    assert sorted(tuple(one.effects) for one in memory.suggest()) == [
        ("cancel", "notify"),
        ("notify", "refund"),
    ]
