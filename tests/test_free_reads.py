"""Tasks that only read, asked for in free words: no word can do harm, only a wrong value."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from em import Memory
from em.errors import RoutineError
from em.runner.run import RunResult
from em.traces.trace import Message, Mission, ToolCall, Trace

CODES = {"Kilby": "K-11", "Ostrava": "O-22", "Tregor": "T-33", "Rixdorf": "R-44", "Gdansk": "G-55"}


def distance(start: str, end: str) -> dict[str, Any]:
    return {"miles": sum(int(one[2:]) for one in (start, end))}


TOOLS: dict[str, Any] = {
    "get_code_of_town": lambda town: {"code": CODES[town]},
    "estimate_distance": distance,
    "get_parcels": lambda depot: {"depot": depot, "parcels": 4},
    "list_lorries": lambda: {"lorries": ["L1", "L2"]},
    "find_invoice": lambda booking, policy=None: {"booking": booking, "policy": policy},
}


def trace(words: str, *calls: tuple[str, dict[str, Any]]) -> Trace:
    events: list[Any] = [Message(role="user", text=words)]
    for tool, args in calls:
        events.append(ToolCall(tool=tool, args=args, result=TOOLS[tool](**args), effect="read"))
    return Trace(mission=Mission(goal=words), events=events, outcome="success")


class Learnt:
    def __init__(self, memory: Memory, *traces: Trace) -> None:
        self.memory = memory
        self.routine = memory.compile([memory.add_trace(one) for one in traces], name="look")

    def run(self, request: str) -> tuple[RunResult, list[tuple[str, dict[str, Any]]]]:
        made: list[tuple[str, dict[str, Any]]] = []

        def noted(name: str) -> Any:
            def call(**args: Any) -> Any:
                made.append((name, args))
                return TOOLS[name](**args)

            return call

        tools = {name: noted(name) for name in TOOLS}
        return self.memory.run(self.routine, {"request": request}, tools, remember=False), made


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path / "em.db") as memory:
        yield memory


@pytest.fixture(scope="module")
def counter(new_memory: Callable[[], Memory]) -> Learnt:
    said = (
        ("How many parcels lie at the depot 'North'?", "North"),
        ("Tell me the number of parcels at depot 'Harbour', please.", "Harbour"),
        ("Could you count the parcels of the depot 'Mill'?", "Mill"),
    )
    return Learnt(new_memory(), *(trace(w, ("get_parcels", {"depot": d})) for w, d in said))


@pytest.mark.parametrize(
    "words",
    [
        "Could you check if there are parcels at the depot 'Quay'?",
        "I can't remember it. How many parcels lie at the depot 'Quay' or on its yard?",
        "Never mind the rain! Please count the parcels of the depot 'Quay', I want every detail.",
    ],
)
def test_a_condition_or_a_denial_elsewhere_does_not_keep_a_read(
    counter: Learnt, words: str
) -> None:
    result, made = counter.run(words)
    assert (result.status, made) == ("ok", [("get_parcels", {"depot": "Quay"})]), result


@pytest.mark.parametrize(
    "words",
    [
        "Don't count the parcels of the depot 'Quay'.",
        "There is no need to count the parcels of the depot 'Quay'.",
        "Count the parcels of another depot than 'Quay'.",
        "Count the parcels of every depot.",
        "Count the parcels of the second depot.",
        "Count the parcels of the depots 'Quay' and 'Mill'.",
        "Count the parcels.",
        "You're proud of the parcels at the depot 'Quay'.",
        "The parcels at the depot 'Quay' are wet.",
    ],
)
def test_a_read_that_is_denied_not_asked_for_or_of_what_is_not_said(
    counter: Learnt, words: str
) -> None:
    result, made = counter.run(words)
    assert (result.status, made) == ("needs_input", []), result


def test_words_that_choose_don_t_matter_where_nothing_is_chosen(memory: Memory) -> None:
    learnt = Learnt(
        memory,
        trace("Which lorries do we have?", ("list_lorries", {})),
        trace("Please list the lorries.", ("list_lorries", {})),
        trace("Show me our lorries now.", ("list_lorries", {})),
    )
    result, made = learnt.run("Show me the latest lorries, some of them may be new.")
    assert (result.status, made) == ("ok", [("list_lorries", {})]), result
    assert learnt.run("Don't show me the lorries.")[0].status == "needs_input"


def test_a_recorded_value_that_is_a_plain_word_may_be_said_in_any_case(memory: Memory) -> None:
    said = (
        ("How many parcels lie at the Harbour depot?", "Harbour"),
        ("Tell me the number of parcels at the Station depot, please.", "Station"),
        ("Could you count the parcels of the harbour depot?", "Harbour"),
        ("Please count the parcels of the station depot.", "Station"),
    )
    learnt = Learnt(memory, *(trace(w, ("get_parcels", {"depot": d})) for w, d in said))
    result, made = learnt.run("Could you tell me how many parcels the station depot has?")
    assert (result.status, made) == ("ok", [("get_parcels", {"depot": "Station"})]), result
    for words in (
        "Count the parcels of the river depot.",
        "Count the harbour and station parcels.",
    ):
        assert learnt.run(words)[0].status == "needs_input"


def way(words: str, first: str, second: str, *, swapped: bool = False) -> Trace:
    start, end = CODES[first], CODES[second]
    args = {"start": end, "end": start} if swapped else {"start": start, "end": end}
    return trace(
        words,
        ("get_code_of_town", {"town": first}),
        ("get_code_of_town", {"town": second}),
        ("estimate_distance", args),
    )


def test_a_read_with_what_reads_before_it_gave(memory: Memory) -> None:
    learnt = Learnt(
        memory,
        way("What is the distance from Kilby to Ostrava?", "Kilby", "Ostrava"),
        way("Tell me the distance between Tregor and Kilby.", "Tregor", "Kilby"),
        way("Estimate the distance from Ostrava to Tregor, please.", "Ostrava", "Tregor"),
        way("The distance of Gdansk and Tregor?", "Gdansk", "Tregor"),
    )
    result, made = learnt.run("How large is the distance from Rixdorf to Gdansk?")
    assert result.status == "ok", result
    assert made[-1] == ("estimate_distance", {"start": "R-44", "end": "G-55"})
    assert learnt.run("How large is the distance from Rixdorf?")[0].status == "needs_input"


def test_ways_that_only_symmetric_reads_tell_apart_are_the_same(memory: Memory) -> None:
    """`Kilby to Tregor` was looked up both ways, with the same result."""
    both = [
        way("What is the distance from Kilby to Tregor?", "Kilby", "Tregor"),
        way("Tell me the distance between Kilby and Tregor.", "Kilby", "Tregor", swapped=True),
        way("Estimate the distance from Ostrava to Gdansk, please.", "Ostrava", "Gdansk"),
        way("The distance of Rixdorf and Kilby?", "Rixdorf", "Kilby"),
    ]
    result, made = Learnt(memory, *both).run("Tell me the distance between Gdansk and Rixdorf.")
    assert result.status == "ok", result
    assert sorted(made[-1][1].values()) == ["G-55", "R-44"]


def test_a_read_whose_values_nothing_gives_is_not_left_out(memory: Memory) -> None:
    """Half an answer is none."""
    ways = [
        way("What is the distance from Kilby to Ostrava?", "Kilby", "Ostrava"),
        way("Tell me the distance between Tregor and Kilby.", "Tregor", "Kilby", swapped=True),
        way("Estimate the distance from Ostrava to Tregor, please.", "Ostrava", "Tregor"),
        way("The distance of Gdansk and Tregor?", "Gdansk", "Tregor", swapped=True),
    ]
    result, made = Learnt(memory, *ways).run("Tell me the distance between Gdansk and Rixdorf.")
    assert (result.status, made) == ("needs_input", [])


def test_an_argument_that_one_trace_had_is_asked_for_where_words_speak_of_it(
    memory: Memory,
) -> None:
    said = [
        ("Please find the invoice of booking B-701.", {"booking": "B-701"}),
        ("Could you find the invoice for booking B-702?", {"booking": "B-702"}),
        ("Find me the invoice of the booking B-703.", {"booking": "B-703"}),
        ("Find the invoice of booking B-704 with the policy.", {"booking": "B-704", "policy": 7}),
    ]
    try:
        learnt = Learnt(memory, *(trace(words, ("find_invoice", args)) for words, args in said))
    except RoutineError:
        pytest.fail("one trace with a further argument must not keep the others from being learnt")
    result, made = learnt.run("Please find the invoice of booking B-799.")
    assert (result.status, made) == ("ok", [("find_invoice", {"booking": "B-799"})]), result
    assert (
        learnt.run("Find the invoice of booking B-799 and its policy.")[0].status == "needs_input"
    )
