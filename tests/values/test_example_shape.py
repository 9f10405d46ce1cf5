"""What recorded values look like, without the values."""

from typing import Any

import pytest

from em.values.leaves import shapes, without_personal_data


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        (["#W70101", "#W80200"], ["#W00000"]),
        (["#W70101"], ["#X00000"]),
        (["ana@shop.example", "bo@mail.example"], ["name@host"]),
        (["Ana Silva", "Bo Berg"], ["Xxx Xxxxx", "Xx Xxxx"]),
        (["ana_silva_31", "bo_berg_99"], ["xxx_xxxxx_00", "xx_xxxx_00"]),
        (["card_5500", "card_77123"], ["card_0000", "card_00000"]),
        (["2026-11-16"], ["0000-00-00"]),
        ([12, 3.5, None, True], []),
        ([["#W1", "#W2"]], [["#W0"]]),
        (["アナ・シルバ"], ["xx・xxx"]),
        (["x" * 100], ["x" * 39 + "…"]),
    ],
)
def test_shapes(values: list[Any], shown: list[Any]) -> None:
    assert shapes(values) == shown


@pytest.mark.parametrize(
    ("text", "known", "shown"),
    [
        ("Refund order #W70101", {"order_id": "#W70101"}, "Refund order {order_id}"),
        ("Refund order #W70101", {}, "Refund order #X00000"),
        ("Write to ana@shop.example, please", {}, "Write to name@host, please"),
        ("The report of 2026", {}, "The report of 2026"),
        ("Call 5551234 now", {}, "Call 0000000 now"),
        ("Say a word", {"text": "a"}, "Say a word"),
        ("Greet Ana Silva", {"who": ["Ana Silva"]}, "Greet {who}"),
        ("Anabel is not Ana", {"who": "Ana"}, "Anabel is not {who}"),
    ],
)
def test_a_text_without_personal_data(text: str, known: dict[str, Any], shown: str) -> None:
    assert without_personal_data(text, known) == shown
