"""Tasks that always have the same effects, asked for in free words: only their values vary."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from em import Memory
from em.runner.free_words import mentions_in, value_of
from em.runner.package import find_routine, texts_of
from em.runner.run import RunResult
from em.runner.task_plan import Slot
from em.traces.trace import Message, Mission, ToolCall, Trace

PRICES = {"KIL": 40, "OSL": 95, "TRG": 30, "RIX": 70, "HEL": 88, "GDN": 55}
WRITES = ("book_ferry", "cancel_ferry", "rent_bike")


class Harbour:
    """Ferries and bikes."""

    def __init__(self) -> None:
        self.done: list[tuple[str, dict[str, Any]]] = []

    def call(self, tool: str, args: dict[str, Any]) -> Any:
        if tool in WRITES:
            self.done.append((tool, args))
            return {"ticket": f"T-{7000 + len(self.done)}", "status": "booked"}
        return {"port": args["port"], "price": PRICES[args["port"]]}

    def tools(self) -> dict[str, Any]:
        return {
            "book_ferry": lambda port, seats: self.call(
                "book_ferry", {"port": port, "seats": seats}
            ),
            "cancel_ferry": lambda ticket: self.call("cancel_ferry", {"ticket": ticket}),
            "rent_bike": lambda api_token, bike: self.call(
                "rent_bike", {"api_token": api_token, "bike": bike}
            ),
            "get_ferry_price": lambda port: self.call("get_ferry_price", {"port": port}),
        }


def trace(words: str, tool: str, earlier: Any = (), **args: Any) -> Trace:
    effect: Any = "write" if tool in WRITES else "read"
    call = ToolCall(tool=tool, args=args, result=Harbour().call(tool, args), effect=effect)
    return Trace(
        mission=Mission(goal=words, input_summary={"earlier": list(earlier)} if earlier else {}),
        events=[Message(role="user", text=words), call],
        outcome="success",
    )


BOOKED = [
    ("The sea is calling me! Could you book a ferry to KIL for 2 people?", "KIL", 2),
    ("What a week. Please book the ferry to OSL for 3 people.", "OSL", 3),
    ("My aunt is fond of boats. Book the ferry to TRG for 4 people.", "TRG", 4),
    ("It is time for a break. I want a ferry to RIX for 5 people, please book it.", "RIX", 5),
    ("So many plans today. I want to book a ferry to HEL for 6 people.", "HEL", 6),
]  # fmt: skip


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path / "em.db") as memory:
        yield memory


class Learnt:
    def __init__(self, memory: Memory, *traces: Trace, beside: Any = ()) -> None:
        self.memory = memory
        ids = [memory.add_trace(one) for one in traces]
        others = [memory.add_trace(one) for one in beside]
        self.routine = memory.compile(ids, name="serve", beside=others)

    def run(self, request: str, **given: Any) -> tuple[RunResult, Any]:
        harbour = Harbour()
        inputs = {"request": request, **given}
        result = self.memory.run(self.routine, inputs, harbour.tools(), remember=False)
        return result, harbour.done

    @property
    def text(self) -> str:
        return str(texts_of(find_routine(self.memory.store, self.routine.ref))["routine.yaml"])


@pytest.fixture(scope="module")
def booker(new_memory: Callable[[], Memory]) -> Learnt:
    return Learnt(
        new_memory(), *(trace(words, "book_ferry", port=port, seats=n) for words, port, n in BOOKED)
    )


@pytest.mark.parametrize(
    "words",
    [
        "What a week. Would you book a ferry to GDN for 7 people?",
        "I want a ferry to GDN for 7 people, please book it. Thank you.",
        "Good morning! It is time for a break. Book the ferry to 'GDN' for seven people.",
    ],
)
def test_free_words_that_were_never_seen(booker: Learnt, words: str) -> None:
    result, done = booker.run(words)
    assert (result.status, done) == ("ok", [("book_ferry", {"port": "GDN", "seats": 7})]), result


def test_talk_that_no_trace_had_is_asked_about(booker: Learnt) -> None:
    for talk in ("What sunshine.", "It is done.", "I withdraw my request.", "What a weak joke."):
        result, done = booker.run(f"{talk} Would you book a ferry to GDN for 7 people?")
        assert (result.status, done) == ("needs_input", []), talk


def test_traces_that_begin_with_talk_of_their_own_are_learnt_from(booker: Learnt) -> None:
    assert "form:" in booker.text
    assert booker.routine.trials.count("wrong") == 0
    assert booker.routine.trials.count("handed over") == len(BOOKED)


@pytest.mark.parametrize(
    "words",
    [
        "Would you book us a ferry to GDN for 7 people?",
        "For 7 people, please book the ferry to GDN.",
        "Would you book a ferry to GDN?",
        "Would you book a ferry to GDN for some people?",
        "Would you book a ferry for 7 people?",
        "Don't book the ferry to GDN for 7 people.",
        "Book the ferry to GDN for 7 people if it is cheap.",
        "Book the ferry to GDN or KIL for 7 people.",
        "Book the ferry to GDN for 7 people, or 8.",
        "Book the ferry to GDN for 7 people and to KIL for 2 people.",
        "Book the ferry to GDN for 7 people at 40 euros.",
        "Book the ferry to GDN for 7 people. Convey to me a menu.",
        "GDN has 7 people.",
        "I'm considering a ferry to GDN with J. Smith for 7 people.",
        "Our neighbours went to GDN with 7 people last May.",
        "Book the ferry to GDN for 7 people with the note 'window seats'.",
        "",
    ],
)
def test_words_that_say_too_little_too_much_or_something_else(booker: Learnt, words: str) -> None:
    result, done = booker.run(words)
    assert (result.status, done) == ("needs_input", []), result


def test_a_value_that_is_not_said_is_asked_for_by_its_name(booker: Learnt) -> None:
    asked, _ = booker.run("Would you book a ferry to GDN?")
    assert asked.pending_prompt is not None
    assert [field["name"] for field in asked.pending_prompt.fields] == ["seats"]
    result, done = booker.run("Would you book a ferry to GDN?", seats=7)
    assert (result.status, done) == ("ok", [("book_ferry", {"port": "GDN", "seats": 7})])


def test_a_name_stands_for_the_value_that_other_tasks_showed(memory: Memory) -> None:
    spoken = "Let me know the price of the ferry to {}."
    learnt = Learnt(
        memory,
        *(trace(words, "book_ferry", port=port, seats=n) for words, port, n in BOOKED),
        beside=[
            trace(spoken.format("Danzig"), "get_ferry_price", port="GDN"),
            trace("Curious about Danzig, what is its price?", "get_ferry_price", port="GDN"),
            trace(spoken.format("KIL"), "get_ferry_price", port="KIL"),
        ],
    )
    result, done = learnt.run("Would you book a ferry to Danzig for 7 people?")
    assert (result.status, done) == ("ok", [("book_ferry", {"port": "GDN", "seats": 7})]), result
    result, done = learnt.run("Would you book a ferry to Atlantis for 7 people?")
    assert (result.status, done) == ("needs_input", [])


def ticket(number: str) -> Any:
    return [{"tool": "book_ferry", "args": {"port": "KIL"}, "result": {"ticket": number}}]


@pytest.fixture(scope="module")
def canceller(new_memory: Callable[[], Memory]) -> Learnt:
    said = (
        "It is raining. Cancel the ferry for me.",
        "It is sad news. Please cancel that ferry.",
        "Would you cancel the ferry that you booked?",
        "We are ill. Cancel the ferry.",
    )
    return Learnt(
        new_memory(),
        *(
            trace(words, "cancel_ferry", ticket(f"T-81{number}"), ticket=f"T-81{number}")
            for number, words in enumerate(said)
        ),
    )


def test_a_value_of_an_earlier_call(canceller: Learnt) -> None:
    result, done = canceller.run("It is raining. Cancel the ferry.", earlier=ticket("T-9955"))
    assert (result.status, done) == ("ok", [("cancel_ferry", {"ticket": "T-9955"})]), result


@pytest.mark.parametrize(
    ("words", "earlier"),
    [
        ("It is raining. Cancel the ferry.", []),
        ("It is raining. Cancel one ferry some time later.", ticket("T-9955")),
        ("It is raining. Cancel them all, the ferries.", ticket("T-9955")),
        ("It is raining. Something urgent.", ticket("T-9955")),
    ],
)
def test_earlier_calls_that_say_nothing_or_words_that_leave_it_open(
    canceller: Learnt, words: str, earlier: Any
) -> None:
    result, done = canceller.run(words, earlier=earlier)
    assert (result.status, done) == ("needs_input", []), result


@pytest.fixture(scope="module")
def renter(new_memory: Callable[[], Memory]) -> Learnt:
    said = (
        "Fresh air for me! Rent the bike 'tandem' with the api token {}.",
        "Please rent me the bike 'racer' with the token {}.",
        "My legs are stiff. Rent a bike, 'cargo', using api token {}.",
    )
    bikes = ("tandem", "racer", "cargo")
    return Learnt(
        new_memory(),
        *(
            trace(words.format(f"sk9f8x7w{n}q"), "rent_bike", api_token=f"sk9f8x7w{n}q", bike=bike)
            for n, (words, bike) in enumerate(zip(said, bikes, strict=True))
        ),
    )


def test_a_secret_is_what_stands_beside_its_name_and_is_not_kept(renter: Learnt) -> None:
    result, done = renter.run("My legs are stiff. Rent the bike 'folder' with api token zz81kk3.")
    assert (result.status, done) == (
        "ok",
        [("rent_bike", {"api_token": "zz81kk3", "bike": "folder"})],
    ), result
    assert "zz81kk3" not in str(result.output)
    assert "sk9f8x7w0q" not in renter.text
    result, done = renter.run("My legs are stiff. Rent the bike 'folder' with zz81kk3.")
    assert (result.status, done) == ("needs_input", [])


def test_a_source_that_was_wrong_once_is_not_used(memory: Memory) -> None:
    odd = ("Please book the ferry to GDN for 9 people, two of them babies.", "GDN", 7)
    traces = [*BOOKED, odd]
    made = [trace(words, "book_ferry", port=port, seats=n) for words, port, n in traces]
    result, done = Learnt(memory, *made).run("Would you book a ferry to KIL for 7 people?")
    assert (result.status, done) == ("needs_input", [])


def test_a_read_is_made_only_if_the_words_ask_for_it(memory: Memory) -> None:
    said = (
        "Tell me the price of the ferry to KIL, please.",
        "How much is it? The price of a ferry to OSL is what I need.",
        "Could you look up the ferry price to TRG?",
    )
    ports = ("KIL", "OSL", "TRG")
    learnt = Learnt(
        memory,
        *(trace(w, "get_ferry_price", port=p) for w, p in zip(said, ports, strict=True)),
    )
    result, _ = learnt.run("I wonder about the price of the ferry to RIX, please.")
    assert result.status == "ok", result
    assert result.output["get_ferry_price"] == [{"port": "RIX", "price": 70}]
    result, _ = learnt.run("RIX it is.")
    assert result.status == "needs_input"


def test_an_answer_to_other_words_than_the_recorded_ones_is_not_given(memory: Memory) -> None:
    learnt = Learnt(memory, trace("What does KIL cost?", "get_ferry_price", port="KIL"))
    assert learnt.run("What does KIL cost?")[0].status == "ok"
    assert learnt.run("What does OSL cost?")[0].status == "needs_input"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("I'm at 'the pier', it's 5 pm", [("the pier", "quote"), ("5", "number")]),
        ("on October 15th, 2026 or 3 May 2027",
         [("2026-10-15", "date"), ("2027-05-03", "date")]),
        ("move notes.txt to my_docs", [("notes.txt", "file"), ("my_docs", "identifier")]),
        ("tag #sea for @anna at $1,200.50",
         [("#sea", "tag"), ("@anna", "handle"), ("$1,200.50", "number")]),
        ("We met John Levy. Then rain.", [("John Levy", "name")]),
    ],
)  # fmt: skip
def test_values_that_stand_in_words(text: str, found: list[tuple[str, str]]) -> None:
    assert [(one.text, one.look) for one in mentions_in(text)] == found


@pytest.mark.parametrize("digits", ["12345678901234567891", "9" * 400])
def test_a_long_number_keeps_its_last_digit(digits: str) -> None:
    (mention,) = mentions_in(f"refund {digits}")
    assert value_of(mention, Slot(examples=[7, 12])) == int(digits)


def test_a_number_beyond_all_floats_is_no_decimal_number() -> None:
    (mention,) = mentions_in(f"refund {'9' * 400}")
    assert value_of(mention, Slot(examples=[7.5])) is None
