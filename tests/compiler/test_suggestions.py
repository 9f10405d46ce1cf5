"""What is worth compiling: traces with the same effects, by what they save and what is proved."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.cli.em_command import em

from corner_shop import Shop, cancelled, returned
from em import Memory
from em.compiler import proposals, suggestions
from em.errors import NotFound
from em.traces.trace import Message, Mission, ToolCall, Trace
from em.values.call import Usage

NEEDED, MISTAKE = "no longer needed", "ordered by mistake"


@pytest.fixture
def memory() -> Iterator[Memory]:
    with Memory("em.db") as memory:
        yield memory


@pytest.fixture
def shop() -> Shop:
    return Shop()


def costing(trace: Trace, tokens: int) -> Trace:
    return msgspec.structs.replace(trace, usage=Usage(tokens=tokens, cost_usd=tokens / 1e6))


def looking_first(trace: Trace) -> Trace:
    """The same task, on a way with one more read."""
    first, *rest = trace.events
    look = ToolCall(tool="get_product", args={"product_id": "P-4401"}, result={}, effect="read")
    return msgspec.structs.replace(trace, events=[first, look, *rest])


def closed(number: int) -> Trace:
    """A ticket that is closed; one of four had a state that the others did not show."""
    ticket = {"ticket": f"T-7700{number}"}
    found = {**ticket, "state": "frozen" if number == 2 else "open"}
    look = ToolCall(tool="get_ticket", args=ticket, result=found, effect="read")
    close = ToolCall(tool="close_ticket", args=ticket, result="ok", effect="write")
    return Trace(mission=Mission("close", ticket), events=[look, close], outcome="success")


def test_traces_belong_together_if_their_effects_do(memory: Memory, shop: Shop) -> None:
    for number in range(4):
        trace = cancelled(shop, number, (NEEDED, MISTAKE)[number % 2])
        memory.add_trace(trace if number % 2 else looking_first(trace))
    for number in range(2):
        memory.add_trace(returned(shop, number, ["P-4401"]))
    found = {tuple(one.effects): one.count for one in memory.suggest()}
    assert found == {("cancel_order",): 4, ("return_items",): 2}


def test_they_are_ranked_by_savings_times_the_share_that_is_proved(
    memory: Memory, shop: Shop
) -> None:
    for number in range(4):
        memory.add_trace(costing(cancelled(shop, number, (NEEDED, MISTAKE)[number % 2]), 1_000))
    for number in range(4):
        memory.add_trace(costing(closed(number), 1_200))
    best, other = memory.suggest()
    assert best.effects == ("cancel_order",)
    assert (best.tokens, best.cost_usd) == (1_000, 0.001)
    assert best.right_share > other.right_share
    assert best.proof is not None
    assert best.proof.wrong == 0


def close_up(request: str, **args: Any) -> Trace:
    call = ToolCall(tool="lock_doors", args=args, result="ok", effect="write")
    events = [Message(role="user", text=request), call]
    return Trace(mission=Mission("close"), events=events, outcome="success")


@pytest.mark.parametrize("requests", [("Close up", "Close up"), ("Tidy up", "Go home now")])
def test_what_would_do_the_same_on_every_run_is_not_proposed(
    memory: Memory, requests: tuple[str, ...]
) -> None:
    for request in requests:
        memory.add_trace(close_up(request, code="7716-A"))
    (one,) = memory.suggest()
    assert one.problem
    assert not one.worth()[0]


def test_traces_that_only_read_belong_together_if_their_way_is_the_same(memory: Memory) -> None:
    for tools in (("get_sales",), ("get_sales",), ("get_sales", "get_weather")):
        events = [ToolCall(tool=tool, args={}, result=[1], effect="read") for tool in tools]
        memory.add_trace(Trace(mission=Mission("report"), events=events, outcome="success"))
    (one,) = memory.suggest()
    assert (one.count, one.effects, one.problem) == (2, (), "")


def test_of_traces_that_do_not_fit_together_the_main_path_is_proposed(memory: Memory) -> None:
    def shell(*commands: str) -> Trace:
        events = [ToolCall(tool="bash", args={"command": one}, result="") for one in commands]
        given = Mission("", {"file": commands[0][3:]})
        return Trace(mission=given, events=events, outcome="success")

    for file in ("reports/january.txt", "reports/february.txt"):
        memory.add_trace(shell(f"rm {file}"))
    memory.add_trace(shell("rm a7713.txt", "rm b1982.txt", "rm c7719.txt"))
    (one,) = memory.suggest()
    assert one.problem == ""


def test_sessions_that_nothing_labels_count_by_their_last_test_run(memory: Memory) -> None:
    def session(version: str, error: str | None = None) -> str:
        commands = [f"npm version {version}", "npm test"]
        events = [ToolCall(tool="Bash", args={"command": one}, result="ok") for one in commands]
        if error:
            last = msgspec.structs.replace(events[-1], result=None, error=error)
            events = [*events[:-1], last]
        goal = Mission(f"bump the version to {version}", {"version": version})
        return memory.add_trace(Trace(mission=goal, events=events))

    passed = [session(f"1.{n}.0") for n in range(3)]
    session("2.0.0", "Exit code 1\n1 failed")
    doubted = session("3.0.0")
    memory.label(doubted, "unknown")  # what a person says counts first
    (found,) = memory.suggest()
    assert sorted(found.traces) == sorted(passed)


@pytest.mark.parametrize("times", [1, 8])
def test_many_traces_are_counted_but_only_a_sample_of_them_is_compiled(
    memory: Memory, shop: Shop, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[int] = []
    real = suggestions.compile_several

    def counting(traces: Any, **how: Any) -> Any:
        compiled.append(len(traces))
        return real(traces, **how)

    monkeypatch.setattr(suggestions, "compile_several", counting)
    for number in range(24 * times):
        memory.add_trace(cancelled(shop, number % 6, (NEEDED, MISTAKE)[number % 2]))
    (one,) = memory.suggest()
    assert one.count == 24 * times
    assert compiled == [20]


def test_the_command_shows_groups_with_savings_and_proof(memory: Memory, shop: Shop) -> None:
    for number in range(4):
        memory.add_trace(costing(cancelled(shop, number, (NEEDED, MISTAKE)[number % 2]), 1_000))
    ran = em("routine", "suggest", EM_DB="em.db")
    assert "%" in ran.out
    assert "tried on 4 traces: right in" in ran.out
    (best,) = json.loads(em("routine", "suggest", "--json", EM_DB="em.db").out)["suggestions"]
    assert best["proof"]["wrong"] == 0
    made = em("compile", *best["sample"], "--keep", "--name", "cancel", EM_DB="em.db")
    assert made.code == 0, made.err
    assert Path("em.db").exists()


def made_session(version: str, reads: int, note: str, day: int) -> Trace:
    """A session of a coding agent, of which nothing says how it ended."""
    text = f'     1→name = "mill"\n     2→version = "{version}"'
    read = ToolCall(tool="Read", args={"file_path": "/srv/mill/p.toml"}, result=text)
    looks = [ToolCall(tool="Bash", args={"command": "ls"}, result="p.toml")] * reads
    new = f"{version[:-1]}9"
    edit = ToolCall(
        tool="Edit",
        args={
            "file_path": "/srv/mill/p.toml",
            "old_string": f'version = "{version}"',
            "new_string": f'version = "{new}"  # {note}',
        },
        result="updated",
    )
    goal = f'Set the version to {new}, because "{note}".'
    events = [Message(role="user", text=goal), *looks, read, edit]
    return Trace(app={"cwd": "/srv/mill"}, mission=Mission(goal), events=events)


NOTES = ["new colours", "a faster start", "fixed the wheel", "less noise"]


def test_what_a_list_leaves_out_is_counted(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("close", "open", "move"):
        for number in range(3):
            args = {"ticket": f"T-7700{number}"}
            call = ToolCall(tool=f"{kind}_ticket", args=args, result="ok", effect="write")
            memory.add_trace(Trace(mission=Mission(kind, args), events=[call], outcome="success"))
    shown = em("routine", "suggest", "-n", "1", "--db", "em.db")
    assert "-n 3" in shown.err
    found = em("routine", "suggest", "-n", "1", "--json", "--db", "em.db").json
    assert (len(found["suggestions"]), found["more"]) == (1, 2)
    whole = em("routine", "suggest", "--json", "--db", "em.db").json
    assert (len(whole["suggestions"]), whole["more"]) == (3, 0)
    assert (len(memory.propose()["groups"]), memory.propose().get("more")) == (3, None)
    monkeypatch.setattr(proposals, "MOST_GROUPS", 2)
    assert (len(memory.propose()["groups"]), memory.propose()["more"]) == (2, 1)


def test_sessions_that_change_the_same_are_suggested_however_they_looked_around(
    memory: Memory,
) -> None:
    ids = [
        memory.add_trace(made_session(f"{n + 1}.{n}.1", n % 3, note, n))
        for n, note in enumerate(NOTES)
    ]
    (found,) = memory.suggest()
    assert sorted(found.traces) == sorted(ids)
    assert (found.effects, found.problem, found.unlabelled) == (("change *.toml",), "", 4)
    assert found.right_share == 1


def test_sessions_that_were_asked_for_other_things_are_other_groups(memory: Memory) -> None:
    for n, note in enumerate(NOTES):
        memory.add_trace(made_session(f"{n + 1}.{n}.1", 0, note, n))
        other = made_session(f"{n + 1}.{n}.1", 0, note, n)
        goal = f"Comment on the release that has {note}."
        memory.add_trace(other_words(other, goal, new=f"# It has {note}."))
    found = memory.suggest()
    assert [one.count for one in found] == [4, 4]


def other_words(trace: Trace, goal: str, path: str = "", new: str = "") -> Trace:
    """The same session, asked for in other words, in another checkout, or with another change."""

    def moved(event: Any) -> Any:
        if not isinstance(event, ToolCall):
            return Message(role="user", text=goal)
        args = {k: v.replace("/srv/mill", path or "/srv/mill") for k, v in event.args.items()}
        if new and "new_string" in args:
            args["new_string"] = new
        return msgspec.structs.replace(event, args=args)

    return msgspec.structs.replace(
        trace,
        app={"cwd": path or "/srv/mill"},
        mission=Mission(goal),
        events=[moved(event) for event in trace.events],
    )


def test_a_chore_is_one_group_whatever_its_words_and_its_checkout(memory: Memory) -> None:
    goals = ["{v} now, {n}", "We go to {v}: {n}", "{n}, so make it {v}", "bump: {v} ({n})"]
    ids = [
        memory.add_trace(
            other_words(
                made_session(f"{n + 1}.{n}.1", n % 3, note, n),
                goal.format(v=f"{n + 1}.{n}.9", n=note),
                f"/home/dev/checkout-{n}",
            )
        )
        for n, (note, goal) in enumerate(zip(NOTES, goals, strict=True))
    ]
    (found,) = memory.suggest()
    assert sorted(found.traces) == sorted(ids)
    assert (found.problem, found.right_share) == ("", 1)


def test_two_sessions_of_which_each_teaches_the_other_are_suggested(memory: Memory) -> None:
    for n, note in enumerate(NOTES[:2]):
        session = made_session(f"{n + 1}.{n}.1", 0, note, n)
        memory.add_trace(other_words(session, f"release {n + 1}.{n}.9: {note}"))
    (found,) = memory.suggest()
    assert (found.problem, found.right_share) == ("", 1.0)


def test_sessions_worded_alike_are_found_among_others_that_did_something_else(
    memory: Memory,
) -> None:
    alike = [
        memory.add_trace(made_session(f"{n + 1}.{n}.1", 0, note, n)) for n, note in enumerate(NOTES)
    ]
    for n, new in enumerate(["[tool.x]", "# see the wiki", "license = true"]):
        session = made_session(f"{n + 1}.{n}.1", 0, NOTES[n], n)
        goal = f"Something is odd with the {n}th wheel, look into it"
        memory.add_trace(other_words(session, goal, new=new))
    good = [one for one in memory.suggest() if not one.problem]
    assert [sorted(one.traces) for one in good] == [sorted(alike)]


def test_a_session_that_a_person_doubts_is_not_suggested(memory: Memory) -> None:
    ids = [
        memory.add_trace(made_session(f"{n + 1}.{n}.1", 0, note, n)) for n, note in enumerate(NOTES)
    ]
    memory.label(ids[0], "unknown")
    (found,) = memory.suggest()
    assert sorted(found.traces) == sorted(ids[1:])


def test_traces_are_compiled_by_the_first_characters_of_their_ids(
    memory: Memory, shop: Shop
) -> None:
    ids = [memory.add_trace(cancelled(shop, n, (NEEDED, MISTAKE)[n % 2])) for n in range(3)]
    short = [next(one[:n] for n in range(4, 28) if _is_unique(one[:n], ids)) for one in ids]
    assert memory.compile(short, name="cancel").ref == "cancel@1"
    ran = em("compile", *short, "--name", "again", "--keep", "--json", "--db", "em.db")
    assert not ran.code, ran
    said = json.loads(ran.out)
    assert said["kept"] == "again@1"
    with pytest.raises(NotFound):
        memory.compile([*short, "ffff0000"])


def _is_unique(start: str, ids: list[str]) -> bool:
    return sum(one.startswith(start) for one in ids) == 1


def test_of_traces_with_the_same_tools_only_the_newest_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suggestions, "READ_ALIKE", 5)
    read: list[int] = []
    get = suggestions.get_traces
    for number in (25, 100):
        with Memory(tmp_path / f"{number}.db") as memory:
            for order in range(number):
                call = {"type": "tool_call", "tool": "cancel", "args": {"order": f"#W{order}"}}
                look = {"type": "tool_call", "tool": "get_order", "args": {"order": f"#W{order}"}}
                trace = {"mission": {"goal": f"cancel #W{order}"}, "events": [look, call]}
                memory.add_trace({**trace, "outcome": "success"})
            asked: list[str] = []
            monkeypatch.setattr(
                suggestions,
                "get_traces",
                lambda store, ids, asked=asked: asked.extend(ids) or get(store, ids),
            )
            found = suggestions._to_read(memory.store, None, {"success"}, None)
            assert len(found) == 5
            (one,) = memory.suggest()
            assert one.count == len({*one.traces}) == 5
            read.append(len(asked))
    assert read[0] == read[1]
