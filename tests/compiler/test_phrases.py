"""A sentence of a text that is there only if an optional input is given."""

import json
from pathlib import Path
from typing import Any

import pytest

from em.compiler.example import Call, Example
from em.compiler.learner import learn
from em.runner.engine import run_routine

NAMES = ["Ada Berg", "Ben Cole", "Cleo Dunn", "Dov Ek", "Ewa Falk", "Finn Gray"]
GIFTS = ["", "red scarf", "", "tin whistle", "", "wool blanket"]


def given(number: int, gift: str) -> dict[str, str]:
    who = {"name": NAMES[number], "email": f"{NAMES[number][:3].lower()}{number}7@x.example"}
    return who | ({"gift": gift} if gift else {})


def text_of(facts: dict[str, str]) -> str:
    gift = f" A {facts['gift']} is added." if "gift" in facts else ""
    return f"Dear {facts['name']}, your parcel is on its way.{gift} Kind regards"


def recorded(number: int, gift: str) -> Example:
    facts = given(number, gift)
    args = {"to": facts["email"], "text": text_of(facts)}
    return Example(facts, [Call("send_mail", args, {"ok": True}, None, "write")])


def sent(folder: Path, examples: list[Example], facts: dict[str, str]) -> list[str]:
    """Return the texts that the routine sends."""
    routine = learn("task", examples).routine
    (folder / "routine.yaml").write_text(json.dumps(routine))
    texts: list[str] = []

    def send_mail(to: str, text: str) -> Any:
        texts.append(text)
        return {"ok": True}

    run_routine(folder, facts, {"send_mail": send_mail})
    return texts


@pytest.mark.parametrize("gift", ["", "brass bell"])
def test_the_sentence_is_there_if_its_input_is_given(tmp_path: Path, gift: str) -> None:
    examples = [recorded(number, GIFTS[number]) for number in range(5)]
    facts = given(5, gift)
    assert sent(tmp_path, examples, facts) == [text_of(facts)]


def test_one_recording_of_the_sentence_is_not_enough_to_write_it(tmp_path: Path) -> None:
    examples = [recorded(number, GIFTS[number]) for number in range(3)]
    assert sent(tmp_path, examples, given(5, "")) == [text_of(given(5, ""))]
    assert sent(tmp_path, examples, given(5, "brass bell")) == []


def test_one_recording_is_enough_for_a_value_that_signs_set_off(tmp_path: Path) -> None:
    def text(facts: dict[str, str]) -> str:
        return text_of({**facts, "gift": ""}).replace(" A  is added", "") + (
            f" Added: {facts['gift']}." if "gift" in facts else ""
        )

    examples = []
    for number in range(3):
        facts = given(number, GIFTS[number])
        args = {"to": facts["email"], "text": text(facts)}
        examples.append(Example(facts, [Call("send_mail", args, {"ok": True}, None, "write")]))
    for gift in ("", "brass bell"):
        assert sent(tmp_path, examples, given(5, gift)) == [text(given(5, gift))]
