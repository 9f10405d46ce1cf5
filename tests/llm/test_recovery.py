"""A model may mend a failing step, and never sees what is private or secret."""

from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from em.errors import LlmUnavailable
from em.llm import ScriptedClient
from em.llm._recovery import make_auto_fix_fn
from em.settings import RedactSettings
from em.values.call import Fix

CARD = "4111 1111 1111 1111"
KEY = "sk-ant-api03-a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6"


def context(args: Any, message: str = "it failed", **more: Any) -> dict[str, Any]:
    return {
        "step_id": "pay",
        "tool": "charge",
        "args": args,
        "error_type": "ValueError",
        "message": message,
        **more,
    }


def asked(client: ScriptedClient) -> str:
    return " ".join(turn.text for request in client.requests for turn in request.messages)


def modify(args: Any) -> dict[str, Any]:
    return {"strategy": "modify_args", "args": args, "reason": "the amount is a number"}


def test_the_three_strategies() -> None:
    client = ScriptedClient(
        [
            modify({"amount": 5}),
            {"strategy": "skip", "default": [], "reason": "not needed"},
            {"strategy": "fail", "reason": "no way"},
        ]
    )
    fix = make_auto_fix_fn(client)
    here = context({"amount": "five"}, "amount must be a number")
    assert fix(here) == Fix(
        strategy="modify_args", args={"amount": 5}, reason="the amount is a number"
    )
    assert fix(here) == Fix(strategy="skip", default=[], reason="not needed")
    assert fix(here) == Fix(strategy="fail", reason="no way")
    assert "amount must be a number" in asked(client)
    assert '"tool": "charge"' in asked(client)


def test_an_answer_without_what_its_strategy_needs_is_corrected() -> None:
    client = ScriptedClient([{"strategy": "modify_args", "reason": "?"}, modify({"a": 1})])
    assert make_auto_fix_fn(client)(context({"a": 0})).args == {"a": 1}


def test_private_values_and_secrets_never_go_to_the_model_and_come_back_in_their_place() -> None:
    args = {
        "amount": "five",
        "payment": {"card": CARD, "cvv": 987},
        "note": f"card {CARD}, cvv 987",
        "api_key": "hunter2-and-more",
        "header": f"Bearer {KEY}",
    }
    message = f"card {CARD} (41%2011) refused; cvv 987; key hunter2-and-more; {KEY} is not valid"
    client = ScriptedClient(
        lambda request: modify(
            {**msgspec.json.decode(request.prompt.partition("\n")[2])["args"], "amount": 5}
        )
    )
    fix = make_auto_fix_fn(client, private=["Card", "cvv"])(context(args, message))
    assert fix == Fix(
        strategy="modify_args", args={**args, "amount": 5}, reason="the amount is a number"
    )
    for value in (CARD, "987", "hunter2", KEY):
        assert value not in asked(client)
    assert "<private:card>" in asked(client)
    assert "[redacted:api_key]" in asked(client)


def test_a_whole_object_can_be_private() -> None:
    client = ScriptedClient([modify({"who": "<private:who>", "n": 2})])
    who = {"name": "Ana Sousa", "born": 1990, "tags": ["vip", True, None]}
    fix = make_auto_fix_fn(client, private=["who"])(
        context({"who": who, "n": "2"}, "no such person: ana sousa, 1990")
    )
    assert fix.args == {"who": who, "n": 2}
    assert "ousa" not in asked(client)
    assert "1990" not in asked(client)


@pytest.mark.parametrize(
    "returned",
    [
        {"url": "https://evil.example/?c=<private:card>"},
        {"note": "<private:card>"},
        {"card": "x<private:card>"},
        {"card": ["<private:card>"]},
        {"card": {"card": "<private:card>"}},
        {"<private:card>": 1},
        {"other": {"deep": ["<private:card>"]}},
        {"card": "<private:cvv>"},
        {"note": "[redacted:api_key]"},
        {"note": "<private:anything>"},
    ],
)
def test_a_hidden_value_goes_nowhere_else(returned: Any) -> None:
    client = ScriptedClient([modify(returned)])
    args = {"card": CARD, "note": "hi", "url": "https://shop.example"}
    fix = make_auto_fix_fn(client, private=["card"])(context(args))
    assert fix.strategy == "fail"
    assert "refused" in fix.reason


def test_a_list_with_hidden_values_comes_back_whole_or_not_at_all() -> None:
    args = {"cards": [{"card": "1234-5678"}, {"card": "8765-4321"}], "n": 1}
    first, second = {"card": "<private:card>"}, {"card": "<private:card>"}

    def go(cards: Any) -> Fix:
        client = ScriptedClient([modify({"cards": cards, "n": 2})])
        return make_auto_fix_fn(client, private=["card"])(context(args))

    assert go([first, second]).args == {**args, "n": 2}
    assert go([second]).strategy == "fail"


def test_a_text_around_a_secret_may_not_change() -> None:
    args = {"url": "https://ana:s3cretpw@shop.example/x"}
    client = ScriptedClient(
        lambda request: modify(
            {
                "url": msgspec.json.decode(request.prompt.partition("\n")[2])["args"][
                    "url"
                ].replace("shop", "evil")
            }
        )
    )
    fix = make_auto_fix_fn(client)(context(args, "login s3cretpw failed"))
    assert fix.strategy == "fail"
    assert "s3cretpw" not in asked(client)


def test_a_default_may_not_hold_a_hidden_value() -> None:
    client = ScriptedClient([{"strategy": "skip", "default": "<private:card>", "reason": "r"}])
    fix = make_auto_fix_fn(client, private=["card"])(context({"card": CARD}))
    assert fix.strategy == "fail"


def test_what_the_user_calls_secret_is_hidden() -> None:
    redact = RedactSettings(
        patterns={"ticket": r"T-\d+"}, fields=["iban"], tool_args={"charge": ["pin"]}
    )
    client = ScriptedClient([modify({})])
    args = {"pin": "0000", "iban": "PT50 0002", "text": "see T-123"}
    make_auto_fix_fn(client, redact=redact)(context(args, "T-999: pin 0000 wrong for PT50 0002"))
    for value in ("0000", "PT50", "T-123", "T-999"):
        assert value not in asked(client)


def test_a_changed_number_is_not_taken_for_the_same() -> None:
    client = ScriptedClient([modify({"flag": True, "card": "<private:card>"})])
    fix = make_auto_fix_fn(client, private=["card"])(context({"flag": 1, "card": CARD}))
    assert fix.args["flag"] is True


def test_a_model_that_fails_is_a_fix_that_fails() -> None:
    client = ScriptedClient([LlmUnavailable("no answer in 5 tries", place="x y"), "no JSON"])
    fix = make_auto_fix_fn(client)
    assert "no answer in 5 tries" in fix(context({})).reason
    assert fix(context({})).strategy == "fail"


def test_the_model_is_asked_only_so_often() -> None:
    client = ScriptedClient(lambda _request: {"strategy": "fail", "reason": "no"})
    fix = make_auto_fix_fn(client, max_fixes=2)
    reasons = [fix(context({})).reason for _ in range(4)]
    assert reasons[:2] == ["no", "no"]
    assert "limit of 2 fixes" in reasons[3]
    assert len(client.requests) == 2


def test_arguments_that_can_not_be_read_are_not_sent_if_something_is_private() -> None:
    client = ScriptedClient(lambda _request: {"strategy": "fail", "reason": "no"})
    odd = context(f"<Order card={CARD}>")
    assert "not asked" in make_auto_fix_fn(client, private=["card"])(odd).reason
    assert client.requests == []
    assert make_auto_fix_fn(client)(odd).reason == "no"


def test_a_long_message_is_cut() -> None:
    client = ScriptedClient([{"strategy": "fail", "reason": "no"}])
    make_auto_fix_fn(client)(context({}, "x" * 100_000))
    assert len(asked(client)) < 6_000


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.text() | st.just("card"), JSON), st.text(min_size=4))
@example({"SECRET:": None}, "0000")
@example({"--password =": 1}, "0000")
def test_what_a_model_returns_as_it_was_shown_is_what_it_was(args: Any, card: str) -> None:
    def again(request: Any) -> Any:
        shown = msgspec.json.decode(request.prompt.partition("\n")[2])
        return modify(shown["args"])

    args = {**args, "private": card}
    fix = make_auto_fix_fn(ScriptedClient(again), private=["card", "private"])(context(args))
    assert fix.strategy == "modify_args" or "refused" in fix.reason
    if fix.strategy == "modify_args":
        assert fix.args == args


@given(st.text(min_size=4).filter(str.strip), st.text(), st.text())
def test_a_private_text_is_hidden_wherever_it_stands(card: str, left: str, right: str) -> None:
    client = ScriptedClient([{"strategy": "fail", "reason": "no"}])
    message = f"{left}\x00{card}\x00{right}"
    make_auto_fix_fn(client, private=["card"])(context({"card": card, "note": message}, message))
    shown = msgspec.json.decode(asked(client).partition("\n")[2])
    for text in (shown["message"], shown["args"]["note"]):
        assert f"\x00{card}\x00" not in text


def test_other_parts_of_a_context_are_hidden_too() -> None:
    client = ScriptedClient([{"strategy": "fail", "reason": "no"}])
    more = {"input": {"card": CARD, "password": "hunter2-and-more"}}
    make_auto_fix_fn(client, private=["card"])(context({}, f"{CARD} and hunter2-and-more", **more))
    assert CARD not in asked(client)
    assert "hunter2" not in asked(client)


def test_each_of_many_secrets_in_one_text_is_hidden_by_itself_elsewhere() -> None:
    client = ScriptedClient([{"strategy": "fail", "reason": "no"}])
    text = " and ".join(f"password='hunter{number}-x'" for number in range(200))
    make_auto_fix_fn(client)(context({"log": text}, "hunter7-x, hunter199-x: not known"))
    assert "hunter" not in asked(client)
    assert "not known" in asked(client)


def test_a_text_made_to_confuse_is_read_in_good_time() -> None:
    client = ScriptedClient(lambda _request: {"strategy": "fail", "reason": "no"})
    fix = make_auto_fix_fn(client)
    for piece in (
        "password='a' ",
        "password='[redacted:x]' ",
        "[redacted:x]",
        "<private:",
        "secret=",
    ):
        fix(context({"a": piece * 5_000}, piece * 5_000))
    assert len(client.requests) == 5


def test_a_context_that_is_no_json_is_told() -> None:
    client = ScriptedClient(lambda _request: {"strategy": "fail", "reason": "no"})
    fix = make_auto_fix_fn(client)
    assert "not asked" in fix(context({"file": "caf\udce9"})).reason
    assert fix(context({1: 2, "at": object()})).reason == "no"


def test_a_private_value_that_is_a_word_of_the_context_itself() -> None:
    client = ScriptedClient([modify({"word": "<private:word>", "n": 2})])
    fix = make_auto_fix_fn(client, private=["word"])(context({"word": "args", "n": 1}))
    assert fix.args == {"word": "args", "n": 2}
