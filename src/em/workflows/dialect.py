"""Other spellings of a workflow, rewritten into one form before it is read.

`{{ steps.research.output }}` is `{{ memory.research_output }}` with the need for it, `queries` of
`parallel_query` are its `models` with a prompt for each, and `main_llm` of a file is the provider
and the model of each `model_call` that names none.
"""

import re
from collections.abc import Mapping
from typing import Any

from em.values.canonical import Json
from em.values.leaves import texts
from em.workflows.needs import as_variable

MAIN_LLM = "main_llm"
_EXPRESSION = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)
_STEP = re.compile(r"(?<![\w.])steps\.(\w+)\.outputs?\b")
_BARE = ("when", "for_each")
"""Fields that may be an expression without brackets."""


def in_one_form(workflow: Json, main_llm: Any = None) -> Json:
    """Return a workflow in the form that is read. What has another shape is left as it is."""
    steps = workflow.get("steps")
    if not isinstance(steps, list):
        return workflow
    return {**workflow, "steps": [_step(one, main_llm) for one in steps]}


def _step(step: Any, main_llm: Any) -> Any:
    if not isinstance(step, dict):
        return step
    step = _with_model(_with_models(step), main_llm)
    named = [name for text in texts(step) for name in _steps_in(text)]
    named += [n for field in _BARE for n in _STEP.findall(_text(step.get(field)))]
    if not named:
        return step
    step = {name: _rewritten(value, bare=name in _BARE) for name, value in step.items()}
    memory = step.get("memory") or {}
    needs = memory.get("needs") if isinstance(memory, dict) else None
    if not isinstance(memory, dict) or not isinstance(needs, list | None):
        return step
    known = set(needs or ())
    new = [f"tool_output({name})" for name in dict.fromkeys(named)]
    step["memory"] = {**memory, "needs": [*(needs or ()), *(n for n in new if n not in known)]}
    return step


def _steps_in(text: str) -> list[str]:
    return [name for part in _EXPRESSION.findall(text) for name in _STEP.findall(part)]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _rewritten(value: Any, *, bare: bool = False) -> Any:
    if isinstance(value, str):
        if bare and "{" not in value:
            return _STEP.sub(_variable, value)
        return _EXPRESSION.sub(lambda part: _STEP.sub(_variable, part[0]), value)
    if isinstance(value, dict):
        return {name: _rewritten(one) for name, one in value.items()}
    return [_rewritten(one) for one in value] if isinstance(value, list) else value


def _variable(found: re.Match[str]) -> str:
    return f"memory.{as_variable(found[1])}_output"


def _with_models(step: Json) -> Json:
    """Return `queries` of a `parallel_query` as its `models`."""
    inputs = step.get("inputs")
    if step.get("tool") != "parallel_query" or not isinstance(inputs, dict):
        return step
    queries = inputs.get("queries")
    if not isinstance(queries, list) or not queries or "models" in inputs:
        return step
    if not all(isinstance(one, Mapping) and "prompt_template" in one for one in queries):
        return step
    models = [
        {"prompt" if name == "prompt_template" else name: value for name, value in one.items()}
        for one in queries
    ]
    rest = {name: value for name, value in inputs.items() if name != "queries"}
    return {**step, "inputs": {"prompt": models[0]["prompt"], **rest, "models": models}}


def _with_model(step: Json, main_llm: Any) -> Json:
    inputs = step.get("inputs") or {}
    is_call = step.get("tool", "model_call") == "model_call" and isinstance(inputs, dict)
    if not is_call or not isinstance(main_llm, Mapping) or {"provider", "model"} & inputs.keys():
        return step
    given = {name: main_llm[name] for name in ("provider", "model") if main_llm.get(name)}
    return {**step, "inputs": {**given, **inputs}}
