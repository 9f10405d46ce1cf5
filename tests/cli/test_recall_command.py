"""`em recall` from a user's chair."""

import pytest
from em_command import em

from em import Memory


@pytest.fixture
def talk() -> list[str]:
    with Memory() as memory:
        return memory.observe_many(
            [
                {"subject": "ana", "text": text, "speaker": who, "at": at, "session": at}
                for text, who, at in (
                    ("I moved to Porto last Friday", "Ana", "2025-04-07"),
                    ("How is the new flat?", "Bo", "2025-04-07"),
                    ("The view of the river is great", "Ana", "2025-04-07"),
                    ("My bike was stolen\x1b[31m", "Bo", "2025-05-02"),
                )
            ]
        )


def test_a_question_gets_a_table_best_first(talk: list[str]) -> None:
    ran = em("recall", "where", "did", "Ana", "move")
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert lines[0].split() == ["score", "at", "by", "event", "text"]
    assert "I moved to Porto" in lines[1]
    assert talk[0] in lines[1]
    assert "\x1b" not in em("recall", "bike").out


def test_json_is_one_object(talk: list[str]) -> None:
    ran = em("recall", "porto", "--json", "-k", "1", "--neighbours", "1", "--subject", "ana")
    (passage,) = ran.json["passages"]
    assert ran.json["notes"] == []
    assert passage["event_id"] == talk[0]
    assert (passage["text"], passage["speaker"]) == ("I moved to Porto last Friday", "Ana")
    assert passage["at"].startswith("2025-04-07")
    assert [item["text"] for item in passage["neighbours"]] == ["How is the new flat?"]


def test_windows_order_and_bounds(talk: list[str]) -> None:
    asked = ("what", "did", "Bo", "ask", "about", "the", "flat")
    window = em("recall", *asked, "-k", "1", "--neighbours", "1").out.splitlines()
    assert window[1:] == [
        "  Ana: I moved to Porto last Friday",
        "> Bo: How is the new flat?",
        "  Ana: The view of the river is great",
    ]
    ordered = em("recall", "river porto", "--in-order", "--json").json["passages"]
    assert [passage["event_id"] for passage in ordered] == talk[:3]
    assert "bike" not in em("recall", "bike", "--until", "2025-05-01").out
    assert "bike" in em("recall", "bike", "--since", "2025-05-01").out


def test_the_command_narrows_too() -> None:
    assert em("observe", "ana", "a key", "--session", "s1", "--metadata", "project=atlas").code == 0
    assert em("observe", "ana", "a key too", "--metadata", "project=borea").code == 0
    for options, text in (
        (["--metadata", "project=atlas"], "a key"),
        (["--session", "s1"], "a key"),
        (["--metadata", "project=borea"], "a key too"),
    ):
        passages = em("recall", "key", *options, "--json").json["passages"]
        assert [passage["text"] for passage in passages] == [text]
    assert em("recall", "key", "--metadata", "project").code == 2
