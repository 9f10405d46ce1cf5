"""No value becomes syntax: hostile values go through a learnt routine, in a real shell."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from em.compiler.compile_trace import compile_several
from em.compiler.draft import write_package
from em.runner.engine import run_routine
from em.settings import AllowSettings
from em.traces.trace import Message, Mission, ToolCall, Trace, as_kept
from strategies import examples

ALLOWED = AllowSettings(commands=["grep", "sed", "sort", "touch", "cat"], folders=["."])
KEPT = {"notes.txt": "alpha beta\n", "other.txt": "other\n"}


def session(word: str, new: str, day: int) -> Trace:
    """A session that looks a word up, replaces it, and notes what it did."""

    def bash(command: str, result: str) -> ToolCall:
        at = f"2026-03-0{day}T11:00:00Z"
        return ToolCall(tool="Bash", args={"command": command}, result=result, started_at=at)

    request = f'Replace "{word}" by "{new}" in notes.txt.'
    events = [
        Message(role="user", text=request),
        *([bash("ls", "notes.txt\nother.txt")] if day % 2 else []),
        bash(f"grep -n -e '{word}' notes.txt", f"1:{word} beta"),
        bash("cat notes.txt", f"{word} beta"),
        bash(f"sed -i 's/{word}/{new}/' notes.txt", ""),
        bash(f"echo 'replaced {word}' >> log.txt", ""),
    ]
    return Trace(mission=Mission(goal=request), events=events, outcome="success")


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = compile_several([
        as_kept(session(word, new, day), f"t{day}")
        for day, (word, new) in enumerate(
            [("alpha", "gamma"), ("delta", "epsilon"), ("kappa", "lambda"), ("omega", "sigma")], 1
        )
    ])  # fmt: skip
    folder = tmp_path_factory.mktemp("package") / "routine"
    write_package(made.draft, folder)
    return folder


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    return project


SIGNS = "ab $(){}[]<>|&;'\\`#*?~-=!/.^%@:,+\t"
hostile = st.text(SIGNS, min_size=1, max_size=24) | st.sampled_from([
    "$(touch canary)", "`touch canary`", "x; touch canary", "x' ; touch canary ; '",
    "&& touch canary",
    "-e", "--help", "-f/etc/passwd", "s/a/b/e", "w canary", "a/e;w canary", "\\1", "&", "$HOME",
    "/; w canary", "x\\\ntouch canary", "| tee canary", "> canary", "{{ 7 * 7 }}", "{% raw %}",
])  # fmt: skip


@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(word=hostile, new=hostile)
@example(word="alpha", new="$(touch canary)")
@example(word="alpha", new="x/e; w canary")
def test_a_hostile_value_is_only_ever_text(package: Path, here: Path, word: str, new: str) -> None:
    for file in here.iterdir():
        file.unlink()
    before = {**KEPT, "notes.txt": f"{word} beta\n" if "\n" not in word else "alpha beta\n"}
    for name, text in before.items():
        (here / name).write_text(text)
    result: Any = run_routine(package, {"replace": word, "text": new}, allow=ALLOWED)
    after = {file.name: file.read_text() for file in here.iterdir()}
    assert "canary" not in after
    assert after["other.txt"] == KEPT["other.txt"]
    assert set(after) <= {*KEPT, "log.txt"}
    if result.status == "ok":
        wanted = before["notes.txt"].replace(word, new, 1)
        assert after["notes.txt"] == wanted
        assert after["log.txt"] == f"replaced {word}\n"


def test_the_name_has_no_value_of_a_recording(package: Path) -> None:
    assert "name: replace\n" in (package / "routine.yaml").read_text()


def test_a_plain_value_is_replaced(package: Path, here: Path) -> None:
    for name, text in KEPT.items():
        (here / name).write_text(text)
    given_words = {"request": 'Replace "alpha" by "psi" in notes.txt.'}
    result: Any = run_routine(package, given_words, allow=ALLOWED)
    assert result.status == "ok", result.failure or result.pending_prompt
    assert (here / "notes.txt").read_text() == "psi beta\n"
    assert re.fullmatch("replaced alpha\n", (here / "log.txt").read_text())
