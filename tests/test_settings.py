"""Settings come from the environment, then em.yaml, then defaults; mistakes are named."""

import subprocess
import sys
from pathlib import Path

import pytest

from em import Memory, Settings
from em.errors import UsageError
from em.settings import Untrusted


def test_defaults() -> None:
    assert Settings.load() == Settings(db=".em/em.db", busy_timeout=30.0, synchronous="normal")


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    (tmp_path / "em.yaml").write_text("db: file.db\nbusy_timeout: 5\nredact: {fields: [iban]}\n")
    settings = Settings.load(tmp_path, {"EM_DB": "env.db", "EM_BUSY_TIMEOUT": ""})
    assert (settings.db, settings.busy_timeout) == ("env.db", 5.0)
    assert settings.redact.fields == ["iban"]
    assert Settings.load(tmp_path, {"EM_BUSY_TIMEOUT": "2.5"}).busy_timeout == 2.5


def test_the_files_redaction_reaches_the_store(tmp_path: Path) -> None:
    (tmp_path / "em.yaml").write_text("redact:\n  tool_args: {login: [pin]}\n")
    with Memory() as memory:
        event = memory.log.append("s", "tool_call", {"tool": "login", "args": {"pin": "0000"}})
    assert event.body == {"tool": "login", "args": {"pin": "[redacted:pin]"}}


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("dbb: x", r"unknown setting 'dbb'.*did you mean 'db'"),
        ("zzzz: x", "known settings: db"),
        ("a: &x [1]\nb: *x", "aliases"),
        ("db: 0b_", "not valid YAML"),
        ("db: " + "[" * 5000, "nested too deeply"),
        ("busy_timeout: -1", "busy_timeout"),
        ("db: [", r"em.yaml:[12].*not valid YAML"),
        ("- a\n- b", "names with values"),
        ("synchronous: maybe", "synchronous"),
        ("busy_timeout: soon", "busy_timeout"),
        ("redact: {patterns: {x: [1]}}", "redact.patterns"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, match: str) -> None:
    (tmp_path / "em.yaml").write_text(text)
    with pytest.raises(UsageError, match=match):
        Settings.load(tmp_path, {})


def test_a_file_that_cannot_be_read_is_named_and_a_closed_folder_is_no_mistake(
    tmp_path: Path,
) -> None:
    code = (
        "import os, sys\n"
        "os.chdir(sys.argv[1])\n"
        "from em import EmError, Settings\n"
        "if os.getuid() == 0:\n    os.setgid(65534); os.setuid(65534)\n"
        "try:\n    print(Settings.load(environ={}).db)\n"
        "except EmError as error:\n    print(error)\n"
    )

    def load() -> str:
        command = [sys.executable, "-c", code, str(tmp_path)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    (tmp_path / "em.yaml").write_text("db: mine.db")
    (tmp_path / "em.yaml").chmod(0)
    tmp_path.chmod(0o755)
    assert "em.yaml: can't be read" in load()
    tmp_path.chmod(0o600)
    assert load() == ".em/em.db"
    tmp_path.chmod(0o755)


def test_mistakes_in_the_environment_are_named_as_such() -> None:
    with pytest.raises(UsageError, match=r"environment, setting synchronous.*use normal or full"):
        Settings.load(environ={"EM_SYNCHRONOUS": "FULL"})


def test_another_ending_is_not_silently_ignored(tmp_path: Path) -> None:
    (tmp_path / "em.yml").write_text("redact: {fields: [iban]}")
    with pytest.raises(UsageError, match=r"from em\.yaml"):
        Settings.load(tmp_path, {})


def test_names_without_a_value_say_nothing(tmp_path: Path) -> None:
    (tmp_path / "em.yaml").write_text("db:\nredact:\n")
    assert Settings.load(tmp_path, {}) == Settings()


def test_an_empty_file_is_no_mistake(tmp_path: Path) -> None:
    (tmp_path / "em.yaml").write_text("")
    assert Settings.load(tmp_path, {}) == Settings()


def test_the_environment_is_laid_over_the_file_field_by_field(tmp_path: Path) -> None:
    (tmp_path / "em.yaml").write_text("llm: {provider: openai, model: gpt-x}")
    llm = Settings.load(tmp_path, {"EM_LLM_MODEL": "gpt-y", "EM_LLM_BASE_URL": ""}).llm
    assert (llm.provider, llm.model, llm.base_url) == ("openai", "gpt-y", None)


def test_settings_never_hold_a_key() -> None:
    settings = Settings.load(
        environ={"EM_LLM_API_KEY": "very-secret", "OPENAI_API_KEY": "very-secret"}
    )
    assert "very-secret" not in repr(settings)


@pytest.mark.parametrize("name", ["x" * 5000, "a\\0b", "/proc/self/mem"])
def test_a_name_that_no_file_has_is_ignored_until_trusted_like_any_other(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("EM_TRUSTED_FOLDERS")
    (tmp_path / "em.yaml").write_text(f'state: {{rules: "{name}"}}\n')
    with pytest.warns(Untrusted, match="state.rules"):
        assert Settings.load(tmp_path, {}).state.rules is None
