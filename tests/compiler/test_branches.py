"""Where the ways of traces part, what separates all of them decides; otherwise nothing is done."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from em import Memory
from em.compiler.compile_trace import compile_several, compile_trace
from em.compiler.kind_draft import examples_of
from em.compiler.step_trials import Group
from em.errors import EmError
from em.traces.catalogue import get_traces
from em.traces.trace import Message, Mission, ToolCall, Trace

Parcel = dict[str, Any]


class Office:
    """A post office: parcels, and what was done with them."""

    def __init__(self, **parcels: Parcel) -> None:
        self.parcels, self.done = parcels, []

    def act(self, *args: Any) -> str:
        self.done.append(args)
        return "ok"

    def tools(self) -> dict[str, Any]:
        return {
            "get_parcel": lambda parcel_id: self.parcels[parcel_id],
            "wrap": lambda parcel_id: self.act("wrap", parcel_id),
            "send": lambda parcel_id, city: self.act("send", parcel_id, city),
        }


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path / "em.db") as memory:
        yield memory


CITIES = (
    "Rome Oslo Bern Lima Paris Cairo Kyoto Quito Delhi Dakar Sofia Minsk Accra Hanoi Perth Turin"
).split()


def sent(number: int, parcel: Parcel, *, wrapped: bool) -> Trace:
    parcel_id, city = f"P{7300 + number}", CITIES[number]
    calls = [("get_parcel", {"parcel_id": parcel_id}, parcel, "read")]
    if wrapped:
        calls.append(("wrap", {"parcel_id": parcel_id}, "ok", "write"))
    calls.append(("send", {"parcel_id": parcel_id, "city": city}, "ok", "write"))
    events = [
        Message(role="user", text=f"Please send {parcel_id} to {city} today."),
        *(ToolCall(tool=t, args=a, result=r, effect=e) for t, a, r, e in calls),
    ]
    return Trace(mission=Mission(goal="send"), events=events, outcome="success")


def learnt(memory: Memory, *traces: Trace) -> Any:
    return memory.compile([memory.add_trace(one) for one in traces], name="post")


def parcel(kind: str, weight: int, **more: Any) -> Parcel:
    return {"kind": kind, "weight": weight, **more}


class Post(NamedTuple):
    memory: Memory
    routine: Any


@pytest.fixture(scope="module")
def post(new_memory: Callable[[], Memory]) -> Post:
    """What is fragile was wrapped; the weights say nothing."""
    memory = new_memory()
    routine = learnt(
        memory,
        *(
            sent(n, parcel("fragile" if n < 8 else "plain", 7 * n % 16 + 3), wrapped=n < 8)
            for n in range(16)
        ),
    )
    return Post(memory, routine)


SAID = {"request": "Please send P8811 to Tunis today."}


@pytest.mark.parametrize(
    ("kind", "done"),
    [
        ("fragile", [("wrap", "P8811"), ("send", "P8811", "Tunis")]),
        ("plain", [("send", "P8811", "Tunis")]),
    ],
)
def test_what_separates_all_traces_decides(post: Post, kind: str, done: list[Any]) -> None:
    office = Office(P8811=parcel(kind, 20))
    result = post.memory.run(post.routine, SAID, office.tools())
    assert (result.status, office.done) == ("ok", done)


def test_a_state_that_no_trace_had_is_handed_over(post: Post) -> None:
    office = Office(P8811=parcel("liquid", 20))
    result = post.memory.run(post.routine, SAID, office.tools())
    assert (result.status, office.done) == ("failed", [])


def test_everything_that_separates_the_traces_must_agree(memory: Memory) -> None:
    """The heavy ones were the fragile ones: nobody knows which of the two was the reason."""
    fragile = [sent(n, parcel("fragile", 40 - n), wrapped=True) for n in range(8)]
    plain = [sent(n, parcel("plain", 2 + n), wrapped=False) for n in range(8, 16)]
    routine = learnt(memory, *fragile, *plain)
    for kind, weight, count in (("fragile", 35, 2), ("plain", 11, 1)):
        office = Office(P8811=parcel(kind, weight))
        assert memory.run(routine, SAID, office.tools()).status == "ok"
        assert len(office.done) == count
    for kind, weight in (("fragile", 11), ("plain", 35), ("plain", 25), ("fragile", 25)):
        office = Office(P8811=parcel(kind, weight))
        result = memory.run(routine, SAID, office.tools())
        assert (result.status, office.done) == ("failed", [])


def test_ways_that_nothing_separates_are_not_learnt(memory: Memory) -> None:
    made = [sent(n, parcel("plain", 5 + n), wrapped=n % 2 == 0) for n in range(6)]
    with pytest.raises(EmError):
        learnt(memory, *made)


def test_what_separates_a_few_traces_may_be_an_accident(memory: Memory) -> None:
    made = [sent(n, parcel("fragile", 12 + n), wrapped=True) for n in range(3)]
    made += [sent(n, parcel("plain", 9 + n), wrapped=False) for n in range(3, 6)]
    with pytest.raises(EmError, match="too few traces"):
        learnt(memory, *made)


def test_two_traces_of_a_way_are_too_few_to_go_it(memory: Memory) -> None:
    made = [sent(n, parcel("plain", 5 + n), wrapped=False) for n in range(4)]
    made += [sent(n, parcel("fragile", 5 + n), wrapped=True) for n in (4, 5)]
    with pytest.raises(EmError):
        learnt(memory, *made)


# --- limits ---------------------------------------------------------------------------------------


class Counter:
    """A counter where money is given back, or a person decides."""

    def __init__(self, **claims: Parcel) -> None:
        self.claims, self.done = claims, []

    def act(self, *args: Any) -> str:
        self.done.append(args)
        return "ok"

    def tools(self) -> dict[str, Any]:
        return {
            "get_claim": lambda claim_id: self.claims[claim_id],
            "refund": lambda claim_id: self.act("refund", claim_id),
            "escalate": lambda claim_id: self.act("escalate", claim_id),
        }


SMALL = (12, 49, 7, 31, 44, 26, 18, 3)
LARGE = (51, 75, 310, 64, 99, 180, 57, 88)


def claimed(number: int, claim: Parcel, does: str, said: str = "", **given: Any) -> Trace:
    """What is asked for in words, or as inputs."""
    claim_id = f"C-{6100 + 7 * number}"
    calls = [("get_claim", claim, "read"), (does, "ok", "write")]
    words = [Message(role="user", text=said.format(claim_id))] if said else []
    events = [
        *words,
        *(ToolCall(tool=t, args={"claim_id": claim_id}, result=r, effect=e) for t, r, e in calls),
    ]
    stated = {} if said else {"claim_id": claim_id, **given}
    mission = Mission(goal="settle a claim", input_summary=stated)
    return Trace(mission=mission, events=events, outcome="success")


def claim(amount: float, **more: Any) -> Parcel:
    return {"amount": amount, "currency": "EUR", **more}


def settled(said: str = "Please settle {} today.") -> list[Trace]:
    made = [claimed(n, claim(one), "refund", said) for n, one in enumerate(SMALL)]
    return made + [claimed(n + 8, claim(one), "escalate", said) for n, one in enumerate(LARGE)]


@pytest.mark.parametrize("said", ["Please settle {} today.", ""])
def test_a_number_decides_but_not_between_what_was_seen(memory: Memory, said: str) -> None:
    routine = learnt(memory, *settled(said))
    assert routine.trials.count("wrong") == 0
    given = {"request": said.format("C-9001")} if said else {"claim_id": "C-9001"}
    for amount, done in ((5, "refund"), (49, "refund"), (51, "escalate"), (700, "escalate")):
        counter = Counter(**{"C-9001": claim(amount)})
        result = memory.run(routine, given, counter.tools())
        assert (result.status, counter.done) == ("ok", [(done, "C-9001")])
    for odd in (claim(50), claim(49.5), claim("20"), {"currency": "EUR"}):
        counter = Counter(**{"C-9001": odd})
        result = memory.run(routine, given, counter.tools())
        assert (result.status != "ok", counter.done) == (True, [])


def test_a_number_in_the_words_decides(memory: Memory) -> None:
    said = "Please settle {{}} for {} euros today."
    small = [claimed(n, {"ok": "yes"}, "refund", said.format(one)) for n, one in enumerate(SMALL)]
    large = [
        claimed(n + 8, {"ok": "yes"}, "escalate", said.format(one)) for n, one in enumerate(LARGE)
    ]
    routine = learnt(memory, *small, *large)
    for amount, done in ((30, ["refund"]), (60, ["escalate"]), (50, []), ("a few", [])):
        counter = Counter(**{"C-9001": {"ok": "yes"}})
        request = said.format(amount).format("C-9001")
        memory.run(routine, {"request": request}, counter.tools())
        assert [one for one, _ in counter.done] == done


def test_a_limit_that_was_read_counts_as_well_as_a_constant(memory: Memory) -> None:
    """All amounts above the limit of the claim were also large: both must say the same."""
    made = [claimed(n, claim(a, limit=50 + n), "refund", SAY) for n, a in enumerate(SMALL)]
    made += [claimed(n + 8, claim(a, limit=43 + n), "escalate", SAY) for n, a in enumerate(LARGE)]
    routine = learnt(memory, *made)
    given = {"request": SAY.format("C-9001")}
    for odd in (claim(30, limit=20), claim(80, limit=100)):
        counter = Counter(**{"C-9001": odd})
        result = memory.run(routine, given, counter.tools())
        assert (result.status, counter.done) == ("failed", [])
    counter = Counter(**{"C-9001": claim(30, limit=52)})
    assert memory.run(routine, given, counter.tools()).status == "ok"


def test_a_limit_needs_traces_on_both_sides(memory: Memory) -> None:
    made = [claimed(n, claim(one), "refund", SAY) for n, one in enumerate(SMALL)]
    with pytest.raises(EmError):
        learnt(memory, *made, claimed(9, claim(70), "escalate", SAY))


def test_what_was_decided_by_the_clock_is_no_limit(memory: Memory) -> None:
    """A time in seconds only looks like a number: tomorrow the limit is another one."""
    start = 1_700_000_000
    made = [claimed(n, claim(40, at=start + n), "refund", SAY) for n in range(8)]
    made += [claimed(n + 8, claim(40, at=start + 90 + n), "escalate", SAY) for n in range(8)]
    with pytest.raises(EmError):
        learnt(memory, *made)


SAY = "Please settle {} today."


def test_a_trial_on_a_trace_that_went_the_other_way_is_wrong(memory: Memory) -> None:
    """The agent never called `refund` there: that is another effect, and not a hand-over."""
    kept = get_traces(memory.store, [memory.add_trace(one) for one in settled()])
    draft = compile_several(kept, name="post").draft
    odd = memory.add_trace(claimed(30, claim(20), "escalate", SAY))
    other = get_traces(memory.store, [odd])
    group = Group(examples_of(other, {}), {odd: compile_trace(other[0].trace)})
    problems, _ = group.compared(draft, draft, {})
    assert "wrong thing" in "".join(problems)
