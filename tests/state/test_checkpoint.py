"""The checkpoint: incremental, lossless, atomic, versioned; contradictions are never silent."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.careful import careful

from em import AsyncMemory, Memory
from em.errors import NotFound, StateHeld, StateInvalid
from em.llm import ScriptedClient
from em.state.schema import PolicyName
from em.state.subjects import subjects_of

ANSWER = "def answer(state, year):\n    return len([t for t in state.trips if t.date.year == year])"


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where the log is: what is promised here holds on either store."""
    if request.param == "sqlite":
        return str(tmp_path / "state.db")
    return str(request.getfixturevalue("new_database")())


@pytest.fixture
def memory(address: str) -> Iterator[Memory]:
    with Memory(address) as memory:
        yield memory


def trip(n: int, **more: Any) -> dict[str, Any]:
    return {"destination": f"City {n}", "date": "2024-05-02", "cost_usd": n + 0.5, **more}


def observe_trips(memory: Memory, *records: dict[str, Any]) -> None:
    memory.observe_many({"subject": "ana", "record": one, "type": "Trip"} for one in records)


def test_the_example_of_the_issue(memory: Memory) -> None:
    memory.observe("ana", trip(840), type="Trip")
    moved = {"op": "set", "field": "city", "value": "Porto", "since": "2025-03"}
    moved["evidence"] = "moved to Porto in March"
    memory.observe("ana", "I moved to Porto in March.", at="2025-04-07", facts=[moved])
    state = memory.checkpoint("ana")
    assert sum(t.cost_usd for t in state.trips if t.date.year == 2024) == 840.5
    assert state.profile.city == "Porto"
    (entry,) = state.profile.history["city"]
    assert (entry.at.isoformat()[:10], entry.recorded_at > entry.at) == ("2025-03-01", True)


def test_a_type_field_stays_a_field_and_names_the_class_only_where_nothing_else_does(
    memory: Memory,
) -> None:
    memory.observe("ana", {"type": "cardio"}, type="Workout")
    memory.observe("ana", {"type": "cardio"})
    state = memory.checkpoint("ana")
    assert [w.type for w in state.workouts] == ["cardio"] == [w.type for w in state.cardios]


def test_only_what_is_new_is_read_and_written(memory: Memory, monkeypatch: Any) -> None:
    observe_trips(memory, *(trip(n) for n in range(1_200)))
    memory.checkpoint("ana")
    observe_trips(memory, trip(5_000))
    read: list[int] = []
    written: list[Any] = []
    store = memory.store
    real_read, real_commit = store.rows, store.commit
    monkeypatch.setattr(store, "rows", lambda q: (read.append(e.seq) or e for e in real_read(q)))
    monkeypatch.setattr(store, "commit", lambda c: written.append(c) or real_commit(c))
    report = memory.checkpoint("ana").report
    assert report is not None
    assert (report.new_events, len(set(read))) == (1, 1)
    assert [record.id for record in written[0].records] == ["0000000003"]
    assert len(memory.state("ana").trips) == 1_201
    assert memory.checkpoint("ana").report.new_events == 0  # type: ignore[union-attr]


def test_what_could_not_be_structured_is_listed_and_stays_searchable(memory: Memory) -> None:
    event = memory.observe("ana", "The blue heron is back on the pond.")
    state = memory.checkpoint("ana")
    assert [(one.event_id, one.reason) for one in state.unstructured] == [
        (event, "nobody has read it")
    ]
    assert (state.coverage.observations, state.coverage.unstructured) == (1, 1)
    assert memory.ask("ana", "heron").event_ids == (event,)


def test_a_checkpoint_that_fails_its_proof_leaves_the_last_good_one(
    memory: Memory, monkeypatch: Any
) -> None:
    observe_trips(memory, trip(1))
    memory.checkpoint("ana")
    from em.state import rows

    observe_trips(memory, trip(2, hotel="X"))
    with monkeypatch.context() as broken:
        broken.setattr(rows, "bare_module", lambda _schema: "class Trip: ...")
        with pytest.raises(StateInvalid, match="Trip"):
            memory.checkpoint("ana")
    state = memory.state("ana")
    assert (state.version, len(state.trips)) == (1, 1)
    assert len(memory.checkpoint("ana").trips) == 2


def test_new_fields_and_wider_types_are_versions_with_a_diff(memory: Memory) -> None:
    observe_trips(memory, {"cost": 1, "to": "Rome"})
    memory.checkpoint("ana")
    observe_trips(memory, {"cost": 1.5, "to": "Oslo", "by": "car"})
    report = memory.checkpoint("ana").report
    assert [str(change) for change in report.changes] == [  # type: ignore[union-attr]
        "added Trip.by: nothing -> str",
        "widened Trip.cost: int -> int | float",
    ]
    assert memory.subjects.diff("ana") == report.changes  # type: ignore[union-attr]
    assert [version for version, _, _ in memory.subjects.versions("ana")] == [1, 2]


def test_what_would_break_a_kept_question_waits_to_be_accepted(memory: Memory) -> None:
    observe_trips(memory, trip(1))
    memory.checkpoint("ana")
    model = ScriptedClient([{"route": "code", "code": ANSWER, "parameters": {"year": 2024}}])
    assert memory.ask("ana", "How many trips in 2024?", llm=model).value == 1
    observe_trips(memory, *({"destination": "x", "date": "soon"} for _ in range(5)))
    with pytest.raises(StateHeld, match="How many trips") as held:
        memory.checkpoint("ana")
    assert held.value.data["breaks"][0]["change"].startswith("changed Trip.date: datetime.date")
    assert memory.state("ana").version == 1
    assert memory.checkpoint("ana", accept=True).trips[0].date == "2024-05-02"
    assert memory.subjects.questions("ana") == []


def test_contradictions_are_settled_by_the_latest_event_and_told(memory: Memory) -> None:
    late = memory.observe("ana", {"city": "Porto"}, type="Profile", at="2025-03-01")
    early = memory.observe("ana", {"city": "Lisbon"}, type="Profile", at="2024-01-01")
    assert memory.checkpoint("ana").profile.city == "Porto"
    (conflict,) = memory.conflicts("ana")
    assert (conflict.field, conflict.value, conflict.policy) == ("Profile.city", "Porto", "latest")
    assert (conflict.event_ids, conflict.against) == ((late,), (early,))
    assert memory.state("ana", as_of="2024-06-01").profile.city == "Lisbon"
    assert memory.state("ana", as_of="2023-06-01").profile.city is None


def test_policies_can_be_changed_by_a_person_and_are_in_the_code(memory: Memory) -> None:
    memory.observe("ana", {"dose": 10}, type="Profile", at="2024-01-01", source="doctor")
    memory.observe("ana", {"dose": 20}, type="Profile", at="2025-01-01", source="ana")
    memory.checkpoint("ana")
    decided = memory.resolve("ana", "dose", policy="source", order=["doctor", "ana"])
    assert memory.log.get(decided).kind == "decided"
    state = memory.checkpoint("ana")
    assert (state.profile.dose, state.report.changes[0].kind) == (10, "policy")  # type: ignore[union-attr]
    assert 'by_source(entries, ("doctor", "ana", ))' in state.code
    memory.resolve("ana", "dose", policy="ask")
    assert memory.checkpoint("ana").profile.dose is None
    assert memory.conflicts("ana")[0].open
    memory.resolve("ana", "dose", value=15)
    assert memory.checkpoint("ana").profile.dose == 15
    memory.observe("ana", {"dose": 30}, type="Profile")
    assert memory.checkpoint("ana").profile.dose is None  # said after the decision: asked again
    assert memory.checkpoint("ana", rebuild=True).profile.dose is None


@pytest.mark.parametrize("policy", ["latest", "source", "confirmed", "ask"])
def test_a_persons_decision_beats_what_was_said_before_it_of_the_future(
    memory: Memory, policy: PolicyName
) -> None:
    memory.observe("ana", {"city": "Porto"}, type="Profile", source="ana")
    memory.observe("ana", {"city": "Oslo"}, type="Profile", at="2199-01-01", source="ana")
    memory.checkpoint("ana")
    memory.resolve("ana", "city", policy=policy, order=["ana"] if policy == "source" else ())
    decided = memory.resolve("ana", "city", value="Porto")
    assert memory.checkpoint("ana").profile.city == "Porto"
    memory.undo("ana", decided)
    assert memory.checkpoint("ana").profile.city == (None if policy == "ask" else "Oslo")


def test_a_value_taken_back_is_gone_though_it_was_dated_in_the_future(memory: Memory) -> None:
    memory.observe("ana", {"city": "Oslo"}, type="Profile", at="2199-01-01")
    memory.checkpoint("ana")
    memory.retract("ana", "profile.city")
    assert memory.checkpoint("ana").profile.city is None


def test_what_is_said_after_a_decision_counts_by_its_own_time(memory: Memory) -> None:
    memory.observe("ana", {"city": "Porto"}, type="Profile")
    memory.checkpoint("ana")
    memory.resolve("ana", "city", value="Faro")
    memory.observe("ana", {"city": "Lisbon"}, type="Profile", at="2001-01-01")
    assert memory.checkpoint("ana").profile.city == "Faro"
    memory.observe("ana", {"city": "Evora"}, type="Profile")
    assert memory.checkpoint("ana").profile.city == "Evora"


def test_confirmed_beats_inferred(memory: Memory) -> None:
    memory.observe("ana", "She seems to live in Faro now.", at="2025-01-01")
    memory.observe("ana", "Her address in Porto was confirmed.", at="2024-01-01", source="office")
    facts: list[dict[str, Any]] = [
        {"op": "set", "field": "city", "value": "Faro", "status": "inferred", "events": ["e1"]},
        {"op": "set", "field": "city", "value": "Porto", "status": "confirmed", "events": ["e2"]},
    ]
    for one in facts:
        one["evidence"] = [f"in {one['value']}"]
    memory.checkpoint("ana", llm=careful({"facts": facts}))
    memory.resolve("ana", "profile.city", policy="confirmed")
    assert memory.checkpoint("ana").profile.city == "Porto"


def test_records_with_a_declared_key_are_one(memory: Memory) -> None:
    for phone in ("1", "2"):
        memory.observe("ana", {"email": "b@x", "phone": phone, "n": 1}, type="Contact")
    assert len(memory.checkpoint("ana").contacts) == 2
    memory.declare("ana", "Contact", key="email")
    memory.observe("ana", {"phone": "3"}, type="Contact")
    state = memory.checkpoint("ana", accept=True)
    (contact,) = state.contacts
    assert (contact.email, contact.phone, len(contact.history["phone"])) == ("b@x", "2", 2)
    assert state.unstructured[0].reason == "a Contact without its key 'email'"
    assert memory.conflicts("ana")[0].field == "Contact.phone"


def test_a_decision_can_be_taken_back_and_so_can_that(memory: Memory) -> None:
    memory.observe("ana", {"city": "Porto"}, type="Profile")
    memory.checkpoint("ana")
    by_value = memory.resolve("ana", "city", value="Faro")
    by_policy = memory.resolve("ana", "city", policy="ask")
    assert memory.checkpoint("ana").profile.city == "Faro"
    undone = memory.undo("ana", by_value)
    state = memory.checkpoint("ana")
    assert (state.profile.city, state.report.rebuilt) == ("Porto", True)  # type: ignore[union-attr]
    assert "return ask(entries)" in state.code
    memory.undo("ana", by_policy)
    assert "return latest(entries)" in memory.checkpoint("ana").code
    memory.undo("ana", undone)
    assert memory.checkpoint("ana").profile.city == "Faro"
    assert memory.checkpoint("ana", rebuild=True).profile.city == "Faro"
    for nothing in ("none", memory.observe("ana", "x"), memory.observe("bea", "y")):
        with pytest.raises(NotFound, match="no decision"):
            memory.undo("ana", nothing)


def test_a_key_can_be_taken_back(memory: Memory) -> None:
    for phone in ("1", "2"):
        memory.observe("ana", {"email": "b@x", "phone": phone}, type="Contact")
    declared = memory.declare("ana", "Contact", key="email")
    assert len(memory.checkpoint("ana").contacts) == 1
    memory.undo("ana", declared)
    assert [one.phone for one in memory.checkpoint("ana").contacts] == ["1", "2"]


def test_a_state_of_the_past_holds_what_had_happened_by_then(memory: Memory) -> None:
    for year in (2023, 2024, 2025):
        memory.observe("ana", trip(year), type="Trip", at=f"{year}-06-01")
    memory.checkpoint("ana")
    assert [
        len(memory.state("ana", as_of=f"{year}-12-31").trips) for year in (2022, 2023, 2025)
    ] == [0, 1, 3]
    assert memory.state("ana", known_at="2025-01-01").trips == []


def test_forgetting_an_event_takes_it_out_of_the_state(memory: Memory) -> None:
    secret = memory.observe("ana", {"diagnosis": "kept private"}, type="Visit")
    memory.observe("ana", {"diagnosis": "cold"}, type="Visit")
    moved = {"op": "set", "field": "city", "value": "Porto", "evidence": "moved to Porto"}
    said = memory.observe("ana", "I moved to Porto.", facts=[moved])
    assert memory.checkpoint("ana").profile.city == "Porto"
    memory.forget([secret, said])
    state = memory.state("ana")
    assert [v.diagnosis for v in state.visits] == ["cold"]
    assert not hasattr(state.profile, "city")
    assert "private" not in state.code
    for artefact in memory.store.artefacts("state", "ana"):
        assert "private" not in str(artefact.body)
    assert memory.log.verify().ok


def test_forgetting_one_text_leaves_what_the_model_made_of_the_others(memory: Memory) -> None:
    first = memory.observe("ana", "I have a dog.")
    memory.observe("ana", "I have a cat.")
    found = [
        {
            "op": "add",
            "type": "Pet",
            "record": {"kind": kind},
            "events": [label],
            "evidence": [f"a {kind}"],
        }
        for kind, label in (("dog", "e1"), ("cat", "e2"))
    ]
    memory.checkpoint("ana", llm=careful({"facts": found}))
    memory.forget(first)
    assert [pet.kind for pet in memory.state("ana").pets] == ["cat"]


CHECKPOINT = """
import sys
from em import Memory
with Memory(sys.argv[1]) as memory:
    for _ in range(10):
        memory.checkpoint("ana")
"""


def test_two_processes_that_checkpoint_one_subject_lose_and_double_nothing(
    memory: Memory, address: str
) -> None:
    observe_trips(memory, trip(0))
    workers = [subprocess.Popen([sys.executable, "-c", CHECKPOINT, address]) for _ in range(2)]
    for n in range(1, 40):
        observe_trips(memory, trip(n))
    assert [worker.wait(60) for worker in workers] == [0, 0]
    state = memory.checkpoint("ana")
    assert sorted(t.cost_usd for t in state.trips) == [n + 0.5 for n in range(40)]


def test_many_subjects_are_compiled_by_several_processes(memory: Memory) -> None:
    for name in ("ana", "bea", "cyd"):
        memory.observe(name, {"n": 1}, type="Thing")
    assert memory.checkpoint_many(processes=2) == (3, {})
    assert len(memory.state("bea").things) == 1


def test_one_of_many_that_fails_does_not_keep_the_others(memory: Memory) -> None:
    for name in ("ana", "bea", "cyd"):
        memory.observe(name, {"date": "2024-05-02"}, type="Trip")
    assert memory.checkpoint_many(processes=1) == (3, {})
    model = ScriptedClient([{"route": "code", "code": ANSWER, "parameters": {"year": 2024}}])
    memory.ask("bea", "How many trips in 2024?", llm=model)
    for name in ("ana", "bea", "cyd"):
        memory.observe_many((name, {"date": "soon", "type": "Trip"}) for _ in range(3))
    done, failed = memory.checkpoint_many(processes=1)
    assert (done, list(failed)) == (2, ["bea"])
    assert [memory.state(name).version for name in ("ana", "bea", "cyd")] == [2, 1, 2]


def test_who_observes_while_many_are_compiled_is_taken_in(memory: Memory, monkeypatch: Any) -> None:
    for name in ("ana", "bea"):
        memory.observe(name, {"n": 1}, type="Thing")
    real = memory.store.commit_all

    def late(commits: Any) -> Any:
        memory.observe("bea", {"n": 2}, type="Thing")
        return real(commits)

    monkeypatch.setattr(memory.store, "commit_all", late)
    assert memory.checkpoint_many(processes=1) == (2, {})
    assert [len(memory.state(name).things) for name in ("ana", "bea")] == [1, 2]


def test_a_rhythm_checkpoints_by_itself(tmp_path: Path) -> None:
    with Memory(tmp_path / "every.db", checkpoint_every=3) as memory:
        for n in range(7):
            memory.observe("ana", {"n": n}, type="Thing")
        assert len(memory.state("ana").things) == 6
    with pytest.raises(Exception, match="a number of events"):
        Memory(tmp_path / "every.db", checkpoint_every="often").observe("ana", "x")


def test_a_rhythm_can_be_minutes_and_is_each_subjects_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from em.state import subjects

    clock = [100.0]
    monkeypatch.setattr(subjects.time, "monotonic", lambda: clock[0])
    with Memory(tmp_path / "every.db", checkpoint_every="10m") as memory:
        memory.observe("ana", {"n": 1}, type="Thing")
        clock[0] += 599
        memory.observe("ana", {"n": 2}, type="Thing")
        assert not memory.subjects.has_state("ana")
        clock[0] += 2
        memory.observe("bea", {"n": 1}, type="Thing")
        memory.observe("ana", {"n": 3}, type="Thing")
        assert len(memory.state("ana").things) == 3
        assert not memory.subjects.has_state("bea")
        memory.observe("ana", {"n": 4}, type="Thing")
        assert len(memory.state("ana").things) == 3


def test_a_rhythm_goes_on_in_the_next_process(tmp_path: Path) -> None:
    for n in range(5):
        with Memory(tmp_path / "every.db", checkpoint_every=3) as memory:
            memory.observe("ana", {"n": n}, type="Thing")
    with Memory(tmp_path / "every.db") as memory:
        assert len(memory.state("ana").things) == 3


def test_a_rhythm_that_meets_a_state_that_is_held_keeps_the_observation(tmp_path: Path) -> None:
    with Memory(tmp_path / "every.db", checkpoint_every=2) as memory:
        observe_trips(memory, trip(1), trip(2))
        model = ScriptedClient([{"route": "code", "code": ANSWER, "parameters": {"year": 2024}}])
        memory.ask("ana", "How many trips in 2024?", llm=model)
        bad = [{"destination": "x", "date": "soon"}] * 3
        with pytest.warns(RuntimeWarning, match="would break question"):
            observe_trips(memory, *bad)
        assert memory.state("ana").version == 1
        assert len(list(memory.log.read(kinds="observation"))) == 5


def test_a_subject_that_nothing_is_known_about(memory: Memory) -> None:
    with pytest.raises(NotFound, match="em state checkpoint"):
        memory.state("nobody")
    with pytest.raises(NotFound, match="nothing was observed"):
        memory.checkpoint("nobody")


async def _asked(path: Path) -> Any:
    async with AsyncMemory(path) as memory:
        await memory.observe("ana", {"n": 2}, type="Thing")
        await memory.checkpoint("ana")
        return await memory.ask("ana", code="sum(t.n for t in things)")


def test_the_same_for_asyncio(tmp_path: Path) -> None:
    import asyncio

    assert asyncio.run(_asked(tmp_path / "a.db")).value == 2


def test_subjects_with_news_are_those_whose_state_may_change(memory: Memory) -> None:
    memory.observe("ana", {"city": "Porto"}, type="Profile")
    memory.observe("bo", {"city": "Rome"}, type="Profile")
    memory.checkpoint("ana")
    seen = max(event.seq for event in memory.log.read())
    assert subjects_of(memory.store) == ["ana", "bo"]
    memory.ask("ana", code="profile.city")
    memory.observe("bo", {"city": "Bern"}, type="Profile")
    memory.add_trace({"mission": {"goal": "x"}, "events": []})
    assert subjects_of(memory.store, seen) == ["bo"]
