"""The text of a routine is short, and loads back to the same document."""

from typing import Any

import pytest
import yaml
from bench.hostile import hostile_tasks
from bench.learn.hostile import examples_of
from hypothesis import given
from hypothesis import strategies as st
from test_learner import cancel, facts, recorded, routine_of

from em.compiler.learner import learn
from em.compiler.routine_text import WIDTH, routine_text
from em.errors import RoutineError
from em.values.strict_yaml import load_yaml
from strategies import values

texts = st.text(max_size=200) | st.sampled_from(
    ["yes", "null", "1:30", "14/14", "0x1f", "1e3", "~", "- a", "a: b", "a #b", "'", '"', "\n",
     "a\n", "a\n b", "a\n\nb\n", "{{ x }}", "x" * 150, "é\u2028\U0001f600", "\x7f", "=", "<<",
     "#W1", "2026-01-02"]
)  # fmt: skip
documents = st.dictionaries(
    st.sampled_from(["version", "steps", "tools", "input_schema", "1", "yes", "a: b"]),
    st.recursive(
        values | texts,
        lambda inner: (
            st.lists(inner, max_size=8)
            | st.dictionaries(
                st.sampled_from(["id", "steps", "args", "no", "x y"]), inner, max_size=8
            )
        ),
    ),
    min_size=1,
)


@given(documents)
def test_a_text_loads_back_to_its_document(document: Any) -> None:
    text = routine_text(document)
    assert load_yaml(text.encode(), "", RoutineError) == document
    assert routine_text(load_yaml(text.encode(), "", RoutineError)) == text, "it is stable"


def test_each_step_is_short() -> None:
    routine = routine_of([recorded(cancel, facts(number)) for number in range(6)])
    text = routine_text(routine)
    assert yaml.safe_load(text) == routine
    assert max(map(len, text.splitlines())) <= WIDTH
    assert '- {id: result, type: return, value: "{{ done }}"}' in text
    assert "held: 6/6" in text


def test_a_routine_of_a_help_desk_is_read_at_a_glance() -> None:
    desk = next(task for task in hostile_tasks() if task.name == "tickets")
    ((name, examples),) = examples_of(desk).items()
    assert len(routine_text(learn(name, examples).routine).splitlines()) <= 40


def test_texts_of_several_lines_stay_lines() -> None:
    step = {"id": "a", "type": "let", "value": "Dear {{ name }},\n\nit is done.\n", "save_as": "a"}
    text = routine_text({"steps": [step]})
    assert text.splitlines()[3:] == [
        "  value: |", "    Dear {{ name }},", "", "    it is done.", "  save_as: a",
    ]  # fmt: skip


@pytest.mark.parametrize("number", [1e16, -2.5e-7, 0.1, 1.0, 10**20, 0, -1])
def test_numbers_stay_numbers_everywhere(number: float) -> None:
    assert yaml.safe_load(routine_text({"x": number})) == {"x": number}
    assert type(yaml.safe_load(routine_text({"x": number}))["x"]) is type(number)
