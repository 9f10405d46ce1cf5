"""Calls that were repeated for the items of a list become one step that is made for each item."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from em import Memory
from em.runner.wording import listed
from em.traces.trace import Message, Mission, ToolCall, Trace

SHELF = ["Atlas", "Bible 4", "Codex", "Diary", "Edda"]


class Library:
    """Books on a shelf, and what was done with them."""

    def __init__(self, *books: str) -> None:
        self.books, self.done = list(books or SHELF), []

    def shelf(self) -> list[dict[str, Any]]:
        return [{"title": book, "state": "free"} for book in self.books]

    def act(self, *args: Any) -> dict[str, Any]:
        self.done.append(args)
        return {"ok": True}

    def tools(self) -> dict[str, Any]:
        return {
            "look_at_shelf": self.shelf,
            "lend": lambda title: self.act("lend", title),
            "lend_all": lambda titles: self.act("lend", *titles),
            "swap": lambda old, new: self.act("swap", old, new),
            "ring": lambda: self.act("ring"),
        }


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path / "em.db") as memory:
        yield memory


def trace(said: str, *calls: tuple[str, dict[str, Any]], looked: bool = True) -> Trace:
    """A trace: the request, the shelf, what was done, and the bell."""
    events: list[Any] = [Message(role="user", text=said)]
    if looked:
        shelf = Library().shelf()
        events.append(ToolCall(tool="look_at_shelf", args={}, result=shelf, effect="read"))
    events += [
        ToolCall(tool=tool, args=args, result={"ok": True}, effect="write")
        for tool, args in (*calls, ("ring", {}))
    ]
    return Trace(mission=Mission(goal="lend"), events=events, outcome="success")


def learnt(memory: Memory, *traces: Trace) -> Any:
    return memory.compile([memory.add_trace(one) for one in traces], name="books")


def lent(said: str, *titles: str, looked: bool = True) -> Trace:
    return trace(said, *(("lend", {"title": one}) for one in titles), looked=looked)


@pytest.fixture
def lending(memory: Memory) -> str:
    return learnt(
        memory,
        lent("Lend Codex to me now.", "Codex"),
        lent("Lend Bible 4, Atlas and Diary to me now.", "Bible 4", "Atlas", "Diary"),
        lent("Lend Edda and Atlas to me now.", "Edda", "Atlas"),
    )


@pytest.mark.parametrize(
    ("said", "titles"),
    [
        ("Lend Atlas to me now.", ["Atlas"]),
        ("Lend Atlas, Bible 4, Codex and Edda to me now.", ["Atlas", "Bible 4", "Codex", "Edda"]),
        ("Lend Edda, Diary to me now.", ["Edda", "Diary"]),
    ],
)
def test_a_call_is_made_for_each_thing_that_the_request_names(
    memory: Memory, lending: str, said: str, titles: Sequence[str]
) -> None:
    library = Library()
    result = memory.run(lending, {"request": said}, library.tools())
    assert result.status == "ok"
    assert library.done == [*(("lend", title) for title in titles), ("ring",)]


@pytest.mark.parametrize(
    "said",
    [
        "Lend Atlas or Codex to me now.",
        "Lend Atlas; Codex to me now.",
        "Lend Atlas and Atlas to me now.",
        "Lend all but Atlas to me now.",
        "Lend nothing to me now.",
        "Lend Atlas, to me now.",
        "Don't lend Atlas and Codex to me now.",
        "Lend Atlas to me now. Lend Codex to me now.",
    ],
)
def test_a_list_in_other_words_is_asked_about(memory: Memory, lending: str, said: str) -> None:
    library = Library()
    result = memory.run(lending, {"request": said}, library.tools())
    assert (result.status, library.done) == ("needs_input", [])


def test_every_item_is_checked_before_the_first_call(memory: Memory, lending: str) -> None:
    library = Library("Atlas", "Codex")
    said = "Lend Atlas, Codex and Edda to me now."
    result = memory.run(lending, {"request": said}, library.tools())
    assert (result.status, library.done) == ("failed", []), "Edda is not on the shelf"


def test_a_list_may_be_given_as_an_input(memory: Memory, lending: str) -> None:
    library = Library()
    result = memory.run(lending, {"titles": ["Edda", "Codex"]}, library.tools())
    assert (result.status, library.done[:2]) == ("ok", [("lend", "Edda"), ("lend", "Codex")])
    for given in ({}, {"titles": []}):
        asked = memory.run(lending, given, library.tools())
        assert (asked.status, len(library.done)) != ("ok", 3)
    assert len(library.done) == 3


def test_a_list_may_be_one_argument(memory: Memory) -> None:
    several = (["Codex"], ["Atlas", "Diary"], ["Edda", "Codex", "Atlas"])
    routine = learnt(
        memory,
        *(
            trace(f"Lend {', '.join(titles)} to me now.", ("lend_all", {"titles": titles}))
            for titles in several
        ),
    )
    library = Library()
    said = "Lend Diary, Edda, Atlas, Codex to me now."
    result = memory.run(routine, {"request": said}, library.tools())
    assert (result.status, library.done[0]) == ("ok", ("lend", "Diary", "Edda", "Atlas", "Codex"))


def test_pairs_stay_pairs(memory: Memory) -> None:
    several = (
        [("Codex", "Atlas")],
        [("Edda", "Diary"), ("Atlas", "Codex")],
        [("Diary", "Edda"), ("Codex", "Bible 4"), ("Atlas", "Edda")],
    )
    routine = learnt(
        memory,
        *(
            trace(
                f"Please swap {' and '.join(f'{old} for {new}' for old, new in pairs)} today.",
                *(("swap", {"old": old, "new": new}) for old, new in pairs),
            )
            for pairs in several
        ),
    )
    library = Library()
    said = "Please swap Edda for Atlas and Codex for Diary today."
    result = memory.run(routine, {"request": said}, library.tools())
    assert result.status == "ok"
    assert library.done == [("swap", "Edda", "Atlas"), ("swap", "Codex", "Diary"), ("ring",)]
    for other in ("Please swap Edda and Codex for Diary today.", "Please swap Edda today."):
        asked = memory.run(routine, {"request": other}, library.tools())
        assert (asked.status, len(library.done)) == ("needs_input", 3)


def test_single_things_do_not_teach_how_a_list_reads(memory: Memory) -> None:
    made = [lent(f"Lend {one} to me now.", one) for one in ("Atlas", "Codex", "Edda")]
    routine, library = learnt(memory, *made), Library()
    result = memory.run(routine, {"request": "Lend Atlas, Edda to me now."}, library.tools())
    assert (result.status, library.done) == ("needs_input", [])


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("a, b and c", ["a", "b", "c"]),
        ("a", ["a"]),
        ("a, , b", None),
        ("a and a", None),
        ("", None),
    ],
)
def test_a_list_in_words(text: str, items: list[str] | None) -> None:
    assert listed(text, [" and ", ", "]) == items


def test_what_was_always_on_the_list_must_be_on_it(memory: Memory) -> None:
    """Each title says too little to be looked for on the shelf; together they say enough."""
    several = (["Codex"], ["Atlas", "Diary"], ["Edda", "Codex", "Atlas"])
    routine = learnt(
        memory,
        *(
            trace(f"Lend {', '.join(titles)} to me now.", ("lend_all", {"titles": titles}))
            for titles in several
        ),
    )
    library = Library("Diary", "Atlas")
    result = memory.run(routine, {"request": "Lend Diary, Edda to me now."}, library.tools())
    assert (result.status, library.done) == ("needs_input", []), "Edda is not on the shelf"


# --- several calls for each item ------------------------------------------------------------------


class Rooms:
    """Bookings of rooms: each is looked up, then cancelled."""

    def __init__(self, **states: str) -> None:
        self.states, self.done = states, []

    def get(self, booking_id: str) -> dict[str, Any]:
        return {"id": booking_id, "state": self.states.get(booking_id, "booked")}

    def cancel(self, booking_id: str) -> str:
        self.done.append(booking_id)
        return "ok"

    def tools(self) -> dict[str, Any]:
        return {"get_booking": self.get, "cancel_booking": self.cancel}


CANCEL = "Please cancel {} now."


def called_off(words: str, *ids: str) -> Trace:
    rooms = Rooms()
    events: list[Any] = [Message(role="user", text=CANCEL.format(words))]
    for one in ids:
        args = {"booking_id": one}
        result = rooms.get(one)
        events.append(ToolCall(tool="get_booking", args=args, result=result, effect="read"))
        events.append(ToolCall(tool="cancel_booking", args=args, result="ok", effect="write"))
    return Trace(mission=Mission(goal="cancel"), events=events, outcome="success")


@pytest.fixture
def cancelling(memory: Memory) -> Any:
    """Three traces with one id each, and one with two."""
    one_each = [called_off(one, one) for one in ("B-1001", "B-2002", "B-3003")]
    return learnt(memory, *one_each, called_off("B-4004 and B-4114", "B-4004", "B-4114"))


@pytest.mark.parametrize(
    ("words", "ids"),
    [
        ("B-5005", ["B-5005"]),
        ("B-5005 and B-6006", ["B-5005", "B-6006"]),
        ("B-5005 and B-6006 and B-7007", ["B-5005", "B-6006", "B-7007"]),
        ("B-5005 or B-6006", []),
        ("B-5005, B-6006", []),
        ("B-5005 and B-5005", []),
        ("all but B-5005", []),
        ("B-5005 and nothing", []),
    ],
)
def test_one_or_several_in_turns(
    memory: Memory, cancelling: Any, words: str, ids: Sequence[str]
) -> None:
    rooms = Rooms()
    memory.run(cancelling, {"request": CANCEL.format(words)}, rooms.tools())
    assert rooms.done == ids


def test_all_items_are_looked_up_before_the_first_is_changed(
    memory: Memory, cancelling: Any
) -> None:
    rooms = Rooms(**{"B-6006": "used"})
    said = CANCEL.format("B-5005 and B-6006")
    result = memory.run(cancelling, {"request": said}, rooms.tools())
    assert (result.status, rooms.done) == ("failed", [])


def test_turns_were_tried_on_traces_that_they_were_not_learnt_from(cancelling: Any) -> None:
    assert "right in 3 of 4, handed over in 1, wrong in 0" in str(cancelling.trials)


def test_an_item_that_was_left_out_is_not_learnt_as_a_loop(memory: Memory) -> None:
    made = [called_off(one, one) for one in ("B-1001", "B-2002", "B-3003")]
    routine = learnt(memory, *made, called_off("B-4004 and B-4114", "B-4004"))
    rooms = Rooms()
    request = CANCEL.format("B-5005 and B-6006")
    result = memory.run(routine, {"request": request}, rooms.tools())
    assert (result.status, rooms.done) == ("needs_input", [])
