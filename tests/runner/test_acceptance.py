"""A routine is used by itself by its proof and its outcomes, or on the word of a person."""

from collections.abc import Iterator, Sequence
from getpass import getuser
from typing import Any

import pytest
from tests.cli.em_command import em

from cancelled_orders import recording
from em import Memory
from em.clients.skill import Skill, offer_of
from em.errors import NotFound, RoutineError, UsageError
from em.log.event import EventQuery
from em.runner.package import PROOF, find_routine, keep_routine, texts_of
from em.runner.trial import LEFT_OUT, Trial, read_proof, render_proof
from em.settings import WorkSettings
from em.work.worker import Upkeep

DB = {"EM_DB": "em.db"}


@pytest.fixture
def memory() -> Iterator[Memory]:
    with Memory("em.db") as memory:
        yield memory


def traces(memory: Memory, count: int, outcome: str = "success") -> list[str]:
    return [memory.add_trace({**recording(number), "outcome": outcome}) for number in range(count)]


def learn(memory: Memory, ids: Sequence[str], **options: Any) -> str:
    """Compile traces; a person says that the one constant is one."""
    return memory.compile(ids, name="cancel", constants=["notify"], **options).ref


def is_alone(memory: Memory, ref: str = "cancel") -> bool:
    return memory.standing(ref).by_itself


# --- by proof and outcomes ------------------------------------------------------------------------


def test_three_that_are_right_when_left_out_are_enough(memory: Memory) -> None:
    ids = traces(memory, 4)
    learn(memory, ids[:2])
    assert (memory.standing("cancel").state, is_alone(memory)) == ("in use", False)
    assert "2 of 2" in memory.standing("cancel").why
    learn(memory, ids)
    assert is_alone(memory)


def test_a_constant_that_few_recordings_show_is_open(memory: Memory) -> None:
    ids = traces(memory, 8)
    memory.compile(ids[:4], name="cancel")
    assert not is_alone(memory)
    assert "cancel_order.notify" in memory.standing("cancel").why
    memory.compile(ids, name="cancel")
    assert is_alone(memory), "eight show it"


def test_an_outcome_decides_about_the_use_and_not_about_what_is_learnt(memory: Memory) -> None:
    learn(memory, traces(memory, 4))
    known = texts_of(find_routine(memory.store, "cancel"))["routine.yaml"]
    unlabelled = traces(memory, 4, "unknown")
    learn(memory, unlabelled)
    text = texts_of(find_routine(memory.store, "cancel@2"))["routine.yaml"]
    assert text.partition("version")[2] == known.partition("version")[2]
    assert not is_alone(memory, "cancel@2")
    for trace in unlabelled[:3]:
        assert not is_alone(memory, "cancel@2")
        memory.label(trace, "success")
    assert is_alone(memory, "cancel@2")
    memory.label(unlabelled[3], "failure")
    assert not is_alone(memory, "cancel@2")
    assert "1 of its 4" in memory.standing("cancel@2").why


def test_what_was_changed_after_its_trials_waits(memory: Memory) -> None:
    learn(memory, traces(memory, 4))
    assert is_alone(memory)
    struck = memory.strike("cancel", "order.channel").new
    assert not is_alone(memory, struck)


def test_a_routine_whose_recordings_are_not_here_waits(memory: Memory) -> None:
    learn(memory, traces(memory, 4))
    files = texts_of(find_routine(memory.store, "cancel"))
    with Memory("other.db") as other:
        keep_routine(other.store, files)
        assert not is_alone(other)


def test_a_routine_without_a_proof_waits(memory: Memory) -> None:
    text = 'version: "1"\nname: greet\nsteps: [{id: end, type: return, value: 1}]\n'
    keep_routine(memory.store, {"routine.yaml": text})
    assert (memory.standing("greet").state, is_alone(memory, "greet")) == ("in use", False)


# --- by the word of a person ----------------------------------------------------------------------


def test_a_person_accepts_it_and_takes_that_back(memory: Memory) -> None:
    learn(memory, traces(memory, 1))
    assert not is_alone(memory)
    done = memory.accept("cancel", by="ana")
    assert (done.routine, done.changed, done.now) == ("cancel@1", True, "cancel@1")
    assert not memory.accept("cancel@1", by="eve").changed
    found = memory.standing("cancel")
    assert (found.by_itself, found.accepted_by) == (True, "ana")
    assert memory.withdraw("cancel", by="bo").changed
    assert not memory.withdraw("cancel").changed
    found = memory.standing("cancel")
    assert (found.state, found.by_itself, found.accepted_at) == ("in use", False, None)
    events = list(memory.store.read(EventQuery(stream="routine/cancel")))
    assert [(event.kind, event.body) for event in events] == [
        ("routine_accepted", {"routine": "cancel@1", "by": "ana"}),
        ("acceptance_withdrawn", {"routine": "cancel@1", "by": "bo"}),
    ]
    assert memory.log.verify().ok


def test_the_word_is_about_one_version(memory: Memory) -> None:
    ids = traces(memory, 2)
    learn(memory, ids[:1])
    memory.accept("cancel")
    learn(memory, ids)
    assert (is_alone(memory, "cancel@1"), is_alone(memory, "cancel@2")) == (True, False)


def test_to_accept_a_proposed_version_puts_it_in_use(memory: Memory) -> None:
    ids = traces(memory, 2)
    learn(memory, ids[:1])
    learn(memory, ids, proposed=True)
    assert memory.standing("cancel@2").state == "proposed"
    with pytest.raises(UsageError):
        memory.accept("cancel")
    assert memory.accept("cancel@2").now == "cancel@2"
    assert memory.standing("cancel").state == "in use"
    assert memory.withdraw("cancel@2").now == "cancel@1"
    assert memory.standing("cancel@2").state == "proposed"


def test_retiring_takes_the_word_back(memory: Memory) -> None:
    learn(memory, traces(memory, 1))
    memory.accept("cancel")
    memory.retire("cancel@1")
    assert memory.standing("cancel@1").state == "retired"
    with pytest.raises(RoutineError):
        memory.accept("cancel@1")
    memory.restore("cancel@1")
    assert not is_alone(memory)


@pytest.mark.parametrize("ref", ["nothing", "nothing@1"])
def test_what_is_not_there_is_not_accepted(memory: Memory, ref: str) -> None:
    for act in (memory.accept, memory.withdraw, memory.standing):
        with pytest.raises(NotFound):
            act(ref)


# --- who asks -------------------------------------------------------------------------------------


def test_an_agent_is_told_whether_it_must_ask(memory: Memory) -> None:
    learn(memory, traces(memory, 1))
    skill = Skill(memory.store)

    def told() -> tuple[bool, str]:
        offer = offer_of(memory.store, find_routine(memory.store, "cancel"))
        assert offer is not None
        return offer.by_itself, skill.text()

    asks = told()
    memory.accept("cancel")
    acts = told()
    assert (asks[0], acts[0]) == (False, True)
    assert asks[1] != acts[1]
    memory.withdraw("cancel")
    assert told() == asks


def test_a_routine_that_was_wrong_is_offered_only_on_a_persons_word(memory: Memory) -> None:
    learn(memory, traces(memory, 4))
    artefact = find_routine(memory.store, "cancel")
    files = texts_of(artefact)
    proof = read_proof(files[PROOF])
    trials = {**proof.trials, LEFT_OUT: [Trial("a", "wrong", "paid twice")]}
    wrong = type(proof)(at=proof.at, routine=proof.routine, trials=trials)
    keep_routine(memory.store, {**files, PROOF: render_proof(wrong)}, artefact.from_events)
    artefact = find_routine(memory.store, "cancel@2")
    assert not is_alone(memory, "cancel@2")
    assert offer_of(memory.store, artefact) is None
    memory.accept("cancel@2")
    offer = offer_of(memory.store, artefact)
    assert offer is not None
    assert offer.by_itself


def test_what_a_worker_learns_is_in_use_only_if_it_may_be_used_by_itself(memory: Memory) -> None:
    ids = traces(memory, 1)
    memory.compile(ids, name="cancel")
    memory.add_trace(recording(1))
    said: list[str] = []
    upkeep = Upkeep(memory, WorkSettings(compile_again="0.001s"), said.append)
    for _ in range(2):
        while upkeep.look():
            pass
        memory.observe("ana", "something else happened")
    assert find_routine(memory.store, "cancel").version == 1
    assert memory.standing("cancel@2").state == "proposed"
    assert any("em routine accept cancel@2" in line for line in said)
    assert len([*memory.store.artefacts("routine", "cancel")]) == 2
    memory.accept("cancel@2")
    assert find_routine(memory.store, "cancel").version == 2


def test_what_a_person_compiles_again_is_in_use(memory: Memory) -> None:
    memory.compile(traces(memory, 1), name="cancel")
    memory.add_trace(recording(1))
    assert memory.compile_again("cancel").new == "cancel@2"
    assert memory.standing("cancel").state == "in use"


def test_a_suggestion_says_whether_its_routine_would_wait(memory: Memory) -> None:
    traces(memory, 4)
    (few,) = memory.suggest()
    assert "notify" in few.waits
    for number in range(4, 8):
        memory.add_trace(recording(number))
    (many,) = memory.suggest()
    assert many.waits == ""


def test_the_commands(memory: Memory) -> None:
    learn(memory, traces(memory, 1))
    shown = em("routine", "show", "cancel", "--json", **DB).json["standing"]
    assert (shown["state"], shown["by_itself"]) == ("in use", False)
    assert "em routine accept cancel@1" in em("routine", "show", "cancel", **DB).out
    done = em("routine", "accept", "cancel", "--json", **DB)
    said = {"routine": "cancel@1", "accepted": True, "now": "cancel@1", "allowed": {}}
    assert done.json == said
    (row,) = em("routine", "list", "--json", **DB).json["routines"]
    assert (row["by_itself"], getuser() in row["why"]) == (True, True)
    assert "yes" in em("routine", "list", **DB).out
    assert em("routine", "withdraw", "cancel", "--json", **DB).json["withdrawn"] is True
    assert em("routine", "accept", "nothing", **DB).code == 1
