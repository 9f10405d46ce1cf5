"""Which provider is asked, where, with which key: arguments, environment, em.yaml, defaults."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from em.errors import InputError, MissingExtra, MissingKey, UsageError
from em.llm import get_llm_client
from em.llm.client import Client
from em.llm.providers import anthropic_address, openai_address
from em.testing import LoopbackModel

ALL_KEYS = {"ANTHROPIC_API_KEY": "ka", "OPENAI_API_KEY": "ko", "GEMINI_API_KEY": "kg"}


def address_of(client: Any) -> str:
    return str(client._wire._client.base_url).rstrip("/")


def chosen(environ: dict[str, str], provider: str | None = None) -> tuple[str, str, str, str]:
    client: Any = get_llm_client(provider, environ=environ)
    assert isinstance(client, Client)
    return client.provider, client.model, address_of(client), client._wire._key


def test_anthropic_is_the_default() -> None:
    provider, model, address, key = chosen(ALL_KEYS)
    assert (provider, address, key) == ("anthropic", "https://api.anthropic.com", "ka")
    assert model.startswith("claude-")


@pytest.mark.parametrize("name", ["openai", "gemini", "anthropic"])
def test_a_single_key_chooses_its_provider(name: str) -> None:
    variable = f"{name.upper()}_API_KEY"
    assert chosen({variable: "k"})[::3] == (name, "k")
    with pytest.raises(MissingKey):  # the general key is nobody's
        get_llm_client("gemini", environ={"OPENAI_API_KEY": "ko"})
    assert chosen({variable: "k", "EM_LLM_API_KEY": "mine"})[::3] == ("anthropic", "mine")


def test_the_environment_chooses() -> None:
    provider, model, address, key = chosen({**ALL_KEYS, "EM_LLM_PROVIDER": "openai"})
    assert (provider, address, key) == ("openai", "https://api.openai.com/v1", "ko")
    assert model.startswith("gpt-")
    gemini = chosen({**ALL_KEYS, "EM_LLM_PROVIDER": "gemini", "EM_LLM_MODEL": "gemini-x"})
    where = "https://generativelanguage.googleapis.com/v1beta/openai"
    assert gemini == ("gemini", "gemini-x", where, "kg")


def test_what_is_said_in_the_call_wins() -> None:
    environ = {**ALL_KEYS, "EM_LLM_PROVIDER": "openai", "EM_LLM_MODEL": "gpt-x"}
    client = get_llm_client("anthropic", "claude-x", environ=environ)
    assert (client.provider, client.model) == ("anthropic", "claude-x")


def test_a_model_set_for_one_provider_is_not_asked_of_another() -> None:
    environ = {**ALL_KEYS, "EM_LLM_PROVIDER": "openai", "EM_LLM_MODEL": "gpt-x"}
    assert get_llm_client("anthropic", environ=environ).model.startswith("claude-")


def test_the_general_key_wins_over_the_providers_own() -> None:
    assert chosen({**ALL_KEYS, "EM_LLM_API_KEY": "mine"})[3] == "mine"


@pytest.mark.parametrize(
    ("provider", "given"),
    [
        *[("anthropic", end) for end in ("", "/", "/v1", "/v1/", "/v1/messages", "/v1/messages/")],
        *[("openai", end) for end in ("", "/", "/v1", "/v1/", "/v1/chat/completions")],
    ],
)
def test_any_form_of_an_address_reaches_the_server(provider: str, given: str) -> None:
    with LoopbackModel() as server:
        server.say("hi")
        environ = {
            "EM_LLM_PROVIDER": provider,
            "EM_LLM_BASE_URL": server.base_url + given,
            "EM_LLM_API_KEY": "k",
        }
        assert get_llm_client(environ=environ).complete("a").text == "hi"


def test_addresses_with_a_path_of_their_own_keep_it() -> None:
    assert anthropic_address("https://h/anthropic/v1/messages") == "https://h/anthropic"
    assert openai_address("https://h/v1beta/openai/chat/completions") == "https://h/v1beta/openai"


def test_an_address_alone_tells_its_protocol() -> None:
    environ = {"EM_LLM_BASE_URL": "http://h/v1/chat/completions", "EM_LLM_API_KEY": "k"}
    assert chosen(environ)[:1] == ("openai",)


@pytest.mark.parametrize(
    "address", ["localhost:80", "ftp://h/v1", "https://", "http://h:x/", "http://[::1"]
)
def test_what_is_no_address_is_named(address: str) -> None:
    with pytest.raises(UsageError, match="expected the address"):
        get_llm_client(environ={**ALL_KEYS, "EM_LLM_BASE_URL": address})


def test_a_provider_of_em_yaml(tmp_path: Path) -> None:
    (tmp_path / "em.yaml").write_text(
        "llm: {provider: local}\n"
        "providers:\n"
        "  local: {protocol: openai, base_url: 'http://localhost:11434/v1', model: qwen3}\n"
        "  work:\n"
        "    protocol: anthropic\n"
        "    base_url: https://proxy.example/v1/messages\n"
        "    model: claude-x\n"
        "    key_env: WORK_KEY\n"
        "    price: {input: 1, output: 2}\n"
    )
    assert chosen({}) == ("local", "qwen3", "http://localhost:11434/v1", "none")
    work = chosen({"WORK_KEY": "w"}, "work")
    assert work == ("work", "claude-x", "https://proxy.example", "w")
    with pytest.raises(MissingKey, match="WORK_KEY"):
        get_llm_client("work", environ={})


def test_em_yaml_changes_a_built_in_provider(tmp_path: Path) -> None:
    (tmp_path / "em.yaml").write_text("providers: {anthropic: {model: claude-y, timeout: 5}}")
    provider, model, address, _ = chosen(ALL_KEYS)
    assert (provider, model, address) == ("anthropic", "claude-y", "https://api.anthropic.com")


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("providers: {x: {base_url: 'http://h', model: m}}", "'x' has no protocol"),
        ("providers: {x: {protocol: openai, model: m}}", "'x' has no address"),
        ("providers: {x: {protocol: openai, base_url: 'http://h'}}", "'x' has no model"),
        ("providers: {x: {protocol: smoke}}", "providers"),
        ("providers: {x: {modle: m}}", "modle"),
        ("providers: {x: {protocol: openai, max_retries: -1}}", "max_retries|providers"),
        ("providers: {x: {price: {input: -1, output: 1}}}", "providers"),
    ],
)
def test_mistakes_in_em_yaml_are_named(tmp_path: Path, text: str, match: str) -> None:
    (tmp_path / "em.yaml").write_text(text)
    with pytest.raises(UsageError, match=match):
        get_llm_client("x", environ={})


def test_an_unknown_provider_gets_the_closest_and_the_list() -> None:
    with pytest.raises(UsageError) as caught:
        get_llm_client("antropic", environ={})
    assert "did you mean 'anthropic'?" in caught.value.fix
    assert "gemini" in caught.value.fix


def test_a_missing_key_names_the_variable_and_the_provider_whose_key_is_there() -> None:
    with pytest.raises(MissingKey) as caught:
        get_llm_client(environ={"OPENAI_API_KEY": "ko", "GEMINI_API_KEY": "kg"})
    assert "ANTHROPIC_API_KEY" in caught.value.fix
    assert "EM_LLM_PROVIDER=openai" in caught.value.fix
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("sdk", ["anthropic", "openai"])
def test_a_missing_sdk_names_its_extra(sdk: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, sdk, None)
    with pytest.raises(MissingExtra, match=rf"em-core\[{sdk}\]"):
        get_llm_client(sdk, environ=ALL_KEYS)


def test_no_sdk_is_imported_before_a_client_is_made() -> None:
    code = (
        "import sys, em.llm, em.llm._recovery\n"
        "heavy = ['anthropic', 'openai', 'httpx2', 'pydantic', 'asyncio', 'jsonschema_rs']\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_a_script_is_a_provider_too(tmp_path: Path) -> None:
    (tmp_path / "replies.json").write_text('["hello", {"a": 1}]')
    environ = {"EM_LLM_PROVIDER": "scripted", "EM_LLM_BASE_URL": "replies.json"}
    client = get_llm_client(environ=environ)
    assert (client.provider, client.model) == ("scripted", "scripted")
    assert client.complete("a").text == "hello"
    assert client.complete("a", schema={"type": "object"}).value == {"a": 1}
    with pytest.raises(UsageError, match="needs its script"):
        get_llm_client("scripted", environ={})


@pytest.mark.parametrize("text", ["", "{}", "[", "\xff"])
def test_a_broken_script_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "r.json").write_bytes(text.encode("latin-1"))
    environ = {"EM_LLM_PROVIDER": "scripted", "EM_LLM_BASE_URL": "r.json"}
    with pytest.raises(InputError, match=r"r\.json"):
        get_llm_client(environ=environ)
    with pytest.raises(InputError, match=r"gone\.json"):
        get_llm_client(environ={**environ, "EM_LLM_BASE_URL": "gone.json"})


@pytest.mark.parametrize("key", ["sk-ant-\N{HORIZONTAL ELLIPSIS}", "sk\nant", "sk ant"])
def test_a_key_that_can_be_none_is_told_and_not_shown(key: str) -> None:
    with pytest.raises(UsageError, match="invalid characters") as caught:
        get_llm_client(environ={"ANTHROPIC_API_KEY": key})
    assert "sk" not in str(caught.value)
