"""A second question about the same version loads nothing, and no question changes another's."""

import ast
from contextlib import suppress
from typing import Any

import pytest

from em import Memory
from em.errors import BadQuestion, EmError
from em.state.purity import only_reads
from em.state.state import State

TRIPS = [
    {"city": "Rome", "cost_usd": 100, "tags": ["sun", "art"]},
    {"city": "Oslo", "cost_usd": 200, "tags": ["snow"]},
]
TOTAL = "sum(trip.cost_usd for trip in trips)"


@pytest.fixture
def memory(tmp_path: Any) -> Any:
    with Memory(tmp_path / "em.db") as memory:
        for who, times in (("ana", 1), ("bo", 3)):
            for trip in TRIPS * times:
                memory.observe(who, trip, type="Trip")
            memory.checkpoint(who)
        yield memory


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The subjects whose records were read from the store, one for each time."""
    found: list[str] = []
    inner = State._records

    def counting(self: State, type_: Any) -> Any:
        found.append(self.subject)
        return inner(self, type_)

    monkeypatch.setattr(State, "_records", counting)
    return found


def ask(memory: Memory, code: str, who: str = "ana") -> Any:
    return memory.ask(who, code=code).value


def test_ten_questions_load_as_often_as_one(memory: Memory, loads: list[str]) -> None:
    for _ in range(10):
        answer = memory.ask("ana", code=TOTAL)
        assert (answer.value, answer.records, len(answer.event_ids)) == (300, 2, 2)
    assert loads == ["ana"]


def test_another_subject_and_another_version_are_loaded(memory: Memory, loads: list[str]) -> None:
    assert [ask(memory, TOTAL, who) for who in ("ana", "bo", "ana")] == [300, 900, 300]
    memory.observe("ana", {"city": "Bern", "cost_usd": 1, "tags": []}, type="Trip")
    assert ask(memory, TOTAL) == 300
    memory.checkpoint("ana")
    assert ask(memory, TOTAL) == 301
    assert loads == ["ana", "bo", "ana", "ana"]


def test_what_was_forgotten_is_in_no_answer(memory: Memory) -> None:
    assert ask(memory, TOTAL) == 300
    first = next(iter(memory.log.read(subject="ana", kinds="observation")))
    with Memory(memory.store.location) as other:
        other.forget(first)
    assert ask(memory, TOTAL) == 200
    memory.forget(subject="ana")
    with pytest.raises(EmError):  # there is no state, or one without trips
        ask(memory, TOTAL)


@pytest.mark.parametrize(
    "code",
    [
        "trips.clear()",
        "state.trips.clear()",
        "trips[0].tags.append('x')",
        "for trip in trips: trip.tags.clear()",
        "tags = trips[0].tags\ntags += ['x']",
        "own = [trip.tags for trip in trips]\nown[0] += ['x']",
        "own = {}\nown['a'] = trips[0].tags\nown['a'] += ['x']",
        "del trips[:]",
        "trips[0] = trips[1]",
        "trips.sort(key=lambda trip: -trip.cost_usd)",
        "list(map(trips[0].tags.append, 'x'))",
        "list.append(trips[0].tags, 'x')",
        "getattr(trips[0].tags, 'app' + 'end')('x')",
        "import random\nrandom.shuffle(trips)",
        "def change(tags=trips[0].tags):\n    tags += ['x']\nchange()",
        "[tags := trips[0].tags, tags.append('x')]",
        "(lambda tags: tags.clear())(trips[0].tags)",
        "first, *rest = trips\nfirst.tags.reverse()",
        "trips[0].tags.__iadd__(['x'])",
        "with open('/dev/null') as trips: pass",
    ],
)
def test_code_that_changes_records_changes_its_own_only(memory: Memory, code: str) -> None:
    show = "[(trip.city, tuple(trip.tags)) for trip in trips]"
    before = ask(memory, show)
    assert not only_reads(ast.parse(code))
    with suppress(BadQuestion):  # it may fail, as long as it leaves the others alone
        ask(memory, code)
    assert ask(memory, show) == before


@pytest.mark.parametrize("code", ["trips", "trips[0].tags", "[trip.tags for trip in trips]"])
def test_changing_an_answer_changes_no_other(memory: Memory, code: str) -> None:
    show = "[tuple(trip.tags) for trip in trips]"
    before = ask(memory, show)
    value = ask(memory, code)
    first = value[0]
    if isinstance(first, list):
        first.append("x")
    elif not isinstance(first, str):
        first.tags.append("x")
    value.clear()
    assert ask(memory, show) == before


@pytest.mark.parametrize(
    "code",
    [
        TOTAL,
        "total = 0\nfor trip in trips:\n    total += trip.cost_usd\ntotal",
        "found = []\nfor trip in trips:\n    found.append(trip.city)\nsorted(found)",
        "counts = {}\nfor t in trips:\n    counts[t.city] = counts.get(t.city, 0) + 1\ncounts",
        "from collections import defaultdict\nsums = defaultdict(int)\n"
        "for t in trips:\n    sums[t.city] += t.cost_usd\ndict(sums)",
        "max(trips, key=lambda trip: trip.cost_usd).city",
    ],
)
def test_ordinary_questions_share_what_is_loaded(
    memory: Memory, loads: list[str], code: str
) -> None:
    assert only_reads(ast.parse(code))
    assert ask(memory, code) == ask(memory, code)
    assert loads == ["ana"]
