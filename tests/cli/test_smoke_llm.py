"""`em doctor --llm`: who answers, what it took, or what to do about it."""

from pathlib import Path

import pytest
from em_command import em

from em.testing import LoopbackModel
from em.testing.model_server import failing


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EM_LLM_PROVIDER", "scripted")
    monkeypatch.setenv("EM_LLM_BASE_URL", "replies.json")
    path = tmp_path / "replies.json"
    path.write_text('[{"answer": "yes"}]')
    return path


@pytest.mark.usefixtures("script")
def test_it_says_who_answered_and_what_it_took() -> None:
    ran = em("smoke-llm", EM_LLM_MODEL="m-7")
    assert ran.code == 0
    assert "m-7" in ran.out
    found = em("doctor", "--llm", "--json").json
    assert (found["answer"], found["attempts"], found["cost_usd"]) == ("yes", 1, None)


@pytest.mark.parametrize("protocol", ["anthropic", "openai"])
def test_a_real_sdk_from_the_command(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with LoopbackModel(key="k-1") as server:
        monkeypatch.setenv("EM_LLM_PROVIDER", protocol)
        monkeypatch.setenv("EM_LLM_BASE_URL", f"{server.base_url}/v1")
        monkeypatch.setenv("EM_LLM_API_KEY", "k-1")
        server.say({"answer": "yes"}, failing(404, "no model gpt-0"))
        asked = em("doctor", "--llm", "--json").json
        assert (asked["tokens"]["input"], asked["tokens"]["output"]) == (11, 7)
        unknown = em("doctor", "--llm", "--json")
        assert unknown.code == 1
        assert "no model gpt-0" in unknown.err
        monkeypatch.setenv("EM_LLM_API_KEY", "k-wrong")
        wrong = em("doctor", "--llm")
    assert wrong.code == 1
    assert "the provider rejected the key (HTTP 401)" in wrong.err
    assert "EM_LLM_API_KEY" in wrong.err
    assert "k-wrong" not in wrong.err


def test_what_is_missing_is_named() -> None:
    ran = em("doctor", "--llm")
    assert ran.code == 2
    assert "set ANTHROPIC_API_KEY" in ran.err
    unknown = em("doctor", "--llm", EM_LLM_PROVIDER="opnai")
    assert unknown.code == 2
    assert "did you mean 'openai'" in unknown.err


def test_an_answer_that_steers_terminals_is_shown_harmless(script: Path) -> None:
    script.write_text('[{"answer": "\\u001b[2Jyes"}]')
    assert "\x1b" not in em("doctor", "--llm").out
