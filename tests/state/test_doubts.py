"""What the subject plainly takes back of observed records is in doubt; nothing else is."""

from pathlib import Path

import pytest

from em import Memory
from em.state.rules import collect, rule
from em.state.state import State

KNOWN = {
    "city": "Basel",
    "employer": "Nokia",
    "job": "paralegal",
    "allergy": "kiwis",
    "name": "Ana Kowalski",
}


def read(path: Path, text: str, **speech: str) -> State:
    memory = Memory(f"{path}/em.db")
    memory.observe("ana", KNOWN, type="Profile", at="2024-01-01")
    memory.checkpoint("ana")
    memory.observe("ana", text, at="2025-04-07T12:00:00Z", **speech)
    return memory.checkpoint("ana")


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("I don't live in Basel.", "city"),
        ("i dont live in basel anymore 😅", "city"),
        ("I no longer live in Basel", "city"),
        ("Sorry, I'm not living in Basel any more.", "city"),
        ("I never lived in Basel!", "city"),
        ("I never said I live in Basel, please delete that", "city"),
        ("I didn't say Basel.", "city"),
        ("Bern, not Basel", "city"),
        ("*Bern not Basel", "city"),
        ("It's Bern, not Basel, sorry", "city"),
        ("I meant Bern, not Basel.", "city"),
        ("Not Basel!", "city"),
        ("My city is not Basel.", "city"),
        ("I live in Bern, not in Basel", "city"),
        ("I moved to Ghent last month", "city"),
        ("So glad I moved to Tampere!", "city"),
        ("I moved away from Basel.", "city"),
        ("We had fun. I've moved from Basel to Bern.", "city"),
        ("> still in Basel?\nNope, left in May", "city"),
        ("> do you still live in Basel?\nBern, since March", "city"),
        ("I quit Nokia on Friday.", "employer"),
        ("I don't work at Nokia.", "employer"),
        ("I'm no longer at Nokia", "employer"),
        ("they fired everyone, and I'm not with Nokia any more", "employer"),
        ("I was laid off from Nokia", "employer"),
        ("I'm not a paralegal, sorry", "job"),
        ("update: not a paralegal anymore 🎉", "job"),
        ("turns out im not allergic to kiwis, never was", "allergy"),
        ("Kowalska, not Kowalski", "name"),
        ("My name is not Ana Kowalski", "name"),
    ],
)
def test_a_plain_denial_puts_the_known_value_in_doubt(
    tmp_path: Path, text: str, field: str
) -> None:
    state = read(tmp_path, text)
    assert list(state.doubts) == [f"profile.{field}"]
    assert getattr(state.profile, field) == KNOWN[field]  # it stays, with the doubt said
    why = state.why(f"profile.{field}")
    assert why is not None
    assert why.doubt in text


@pytest.mark.parametrize("text", ["I quit.", "I was laid off.", "they let me go last week"])
def test_work_that_ended_puts_employer_and_job_in_doubt(tmp_path: Path, text: str) -> None:
    assert sorted(read(tmp_path, text).doubts) == ["profile.employer", "profile.job"]


@pytest.mark.parametrize(
    "text",
    [
        "I don't work at Nokia for the money.",
        "I don't live in Basel because of the weather.",
        "I'm not in Basel today.",
        "I'm not at Nokia today, I have the flu.",
        "I'm not leaving Basel.",
        "I quit smoking.",
        "I quit Nokia phones for good.",
        "I left Nokia at five.",
        "I left Basel this morning.",
        "Not a day goes by that I don't miss Basel.",
        "If I don't live in Basel anymore, who pays the taxes.",
        "I wish I didn't work at Nokia.",
        "My sister says I don't live in Basel.",
        "My brother doesn't live in Basel.",
        "Liam quit Nokia.",
        '"I quit Nokia" is what I will tell them one day.',
        "> I don't live in Basel\nwho wrote that",
        "I don't live in Basel?",
        "Next year I don't work at Nokia anymore.",
        "I never said Basel is boring.",
        "I never said I hate Basel.",
        "I take back what I said about Basel, the food is great.",
        "I moved to Linux.",
        "I moved to Marketing last week.",
        "I moved to Ghent in 2010.",
        "When I moved to Ghent I was five.",
        "I might move to Ghent.",
        "I'm moving to Ghent next friday.",
        "I dreamt that I moved to Ghent.",
        "I moved to Ghent, hated it, and came back.",
        "It's raining in Bern, not Basel.",
        "I ordered apples, not kiwis.",
        "It's not like I'm a paralegal or anything.",
        "I'm not only a paralegal, I also teach.",
        "I can't really say I live in Basel.",
        "I couldn't live in Basel without a bike.",
        "> still in Basel?\nYep, same flat",
        "> still in Basel?\nwhy do you ask",
        "I don't live in Basel Street.",
        "I'm not allergic to kiwis yet.",
        "Why not Basel?",
        "I live in Basel, not far from the Rhine.",
        "I haven't moved to Ghent.",
        "I'm not a morning person.",
        "Nokia let go of 500 people.",
        "I was fired up about Nokia.",
    ],
)
def test_other_words_leave_what_is_known(tmp_path: Path, text: str) -> None:
    state = read(tmp_path, text)
    assert dict(state.doubts) == {}
    assert state.as_record(state.profile) == KNOWN


@pytest.mark.parametrize("speech", [{"speaker": "Bo"}, {"role": "assistant"}])
def test_only_the_subject_puts_its_facts_in_doubt(tmp_path: Path, speech: dict[str, str]) -> None:
    assert not read(tmp_path, "I don't live in Basel.", **speech).doubts


def test_answers_and_rules_say_what_is_in_doubt(tmp_path: Path) -> None:
    with Memory(f"{tmp_path}/em.db") as memory:
        memory.observe("ana", KNOWN, type="Profile", at="2024-01-01")
        memory.observe("ana", "I don't live in Basel.", at="2025-04-07T12:00:00Z")
        memory.checkpoint("ana")

        @rule("book")
        def far(state: State, to: str) -> bool:
            return bool(state.profile.city != to)

        @rule("book")
        def called(state: State, to: str) -> bool:
            return bool(state.profile.name)

        memory.subjects.rules += collect({"far": far, "called": called})
        answer = memory.ask("ana", "Where does she live?")
        assert (answer.value, answer.in_doubt) == ("Basel", ("profile.city",))
        assert "I don't live in Basel" in answer.note
        assert memory.ask("ana", code="profile.city").in_doubt == ("profile.city",)
        assert memory.ask("ana", "Where does she work?").in_doubt == ()
        fired = {one.rule: one.in_doubt for one in memory.check("ana", "book", to="Rome")}
        assert fired == {"far": ("profile.city",), "called": ()}


def test_a_doubt_is_gone_once_the_value_is_said_again(tmp_path: Path) -> None:
    with Memory(f"{tmp_path}/em.db") as memory:
        memory.observe("ana", KNOWN, type="Profile", at="2024-01-01")
        memory.observe("ana", "I quit.", at="2025-04-07T12:00:00Z")
        assert len(memory.checkpoint("ana").doubts) == 2
        memory.observe("ana", {"employer": "Nokia"}, type="Profile", at="2025-05-01")
        memory.resolve("ana", "job", value="paralegal")
        state = memory.checkpoint("ana")
        assert not state.doubts
        assert memory.state("ana", as_of="2025-04-08").doubts.keys() == {
            "profile.employer",
            "profile.job",
        }
        assert not memory.state("ana", as_of="2025-01-01").doubts


def test_forgetting_the_text_or_the_record_ends_the_doubt(tmp_path: Path) -> None:
    with Memory(f"{tmp_path}/em.db") as memory:
        record = memory.observe("ana", {"city": "Basel"}, type="Profile", at="2024-01-01")
        memory.observe("ana", {"name": "Ana"}, type="Profile", at="2024-01-01")
        text = memory.observe("ana", "I don't live in Basel.", at="2025-04-07")
        assert memory.checkpoint("ana", rebuild=True).doubts
        memory.forget([record], reason="asked")
        state = memory.state("ana")
        assert not state.doubts
        assert state.as_record(state.profile) == {"name": "Ana"}
        memory.observe("ana", {"city": "Basel"}, type="Profile", at="2024-01-01")
        memory.forget([text], reason="asked")
        assert not memory.checkpoint("ana").doubts
