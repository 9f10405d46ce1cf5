"""What the requests of several traces have in common is a template; the rest are inputs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from em import Memory
from em.compiler.templates import template_of
from em.traces.trace import Message, Mission, ToolCall, Trace


@pytest.mark.parametrize(
    ("texts", "template"),
    [
        (['press "Ok" now', 'press "No" now', 'press "Go!" now'], 'press "{{ a }}" now'),
        (["go to 5", "go to 7", "go to 9"], "go to {{ a }}"),
        (["from A to B, now", "from C to D, now", "from E to F, now"],
         "from {{ a }} to {{ b }}, now"),
    ],
)  # fmt: skip
def test_what_varies_is_a_hole(texts: list[str], template: str) -> None:
    found = template_of(texts)
    assert found is not None
    assert found.text("ab"[: len(found.words) - 1]) == template


@pytest.mark.parametrize(
    "texts",
    [
        ["go to 5", "go to 7"],
        ["go to 5", "go to 5", "go to 5"],
        ["stop", "leave", "sleep"],
        ["go to 5 now", "go to now", "go to 7 now"],
    ],
)
def test_too_little_in_common_is_no_template(texts: list[str]) -> None:
    assert template_of(texts) is None


@given(st.lists(st.text("xyz0 #", min_size=1).map(str.strip).filter(bool), min_size=3, unique=True))
def test_a_template_gives_back_every_request(values: list[str]) -> None:
    texts = [f"please open door {value} for me" for value in values]
    found = template_of(texts)
    if found is None:
        return
    for text, own in zip(texts, found.values, strict=True):
        parts = [found.words[0]]
        for value, words in zip(own, found.words[1:], strict=True):
            parts += [value, words]
        assert "".join("".join(parts).split()) == "".join(text.split())


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path / "em.db") as memory:
        yield memory


def pressed(name: str) -> Trace:
    calls = [
        ToolCall(tool="press", args={"name": name}, result="ok", effect="write"),
        ToolCall(tool="press", args={"name": "Submit"}, result="ok", effect="write"),
    ]
    said = Message(role="user", text=f"Select {name} and submit.")
    return Trace(mission=Mission(goal="press"), events=[said, *calls], outcome="success")


def test_short_values_are_taken_from_the_request(memory: Memory) -> None:
    ids = [memory.add_trace(pressed(name)) for name in ("Up", "Left", "B")]
    routine = memory.compile(ids, name="press")
    done: list[Any] = []
    tools = {"press": lambda name: done.append(name) or "ok"}
    result = memory.run(routine, {"request": "Select Down and submit."}, tools)
    assert (result.status, done) == ("ok", ["Down", "Submit"])
    for other in ("Don't select Up and submit.", "Select Up and Down and submit.", "Submit."):
        assert memory.run(routine, {"request": other}, tools).status == "needs_input"
    assert len(done) == 2
