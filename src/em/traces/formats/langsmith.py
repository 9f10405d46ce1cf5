"""LangSmith: exported runs, one per line or in a list, with their children inside or not."""

from collections.abc import Iterator
from typing import Any

from em.traces.formats._messages import as_args, as_value, read_messages, when
from em.traces.formats._spans import Kind, Span, prompt_text, span_importer
from em.values.canonical import Json

NAME = "langsmith"
_KINDS: dict[str, Kind] = {"tool": "tool", "retriever": "tool", "llm": "llm"}


def _runs(value: Any) -> list[Json]:
    found = value
    if isinstance(value, dict) and isinstance(value.get("runs"), list):
        found = value["runs"]
    runs = found if isinstance(found, list) else [found]
    return [run for run in runs if isinstance(run, dict)]


def _is_langsmith(value: Any) -> bool:
    runs = _runs(value)
    return bool(runs) and all("run_type" in run and "name" in run for run in runs)


def spans_of(value: Any) -> Iterator[Span]:
    """Yield the runs of an export and their children."""
    todo = [(run, "") for run in reversed(_runs(value))]
    while todo:
        run, above = todo.pop()
        if "run_type" in run:
            yield _span(run, above)
            children = run.get("child_runs") or ()
            todo += [(child, str(run.get("id"))) for child in children if isinstance(child, dict)]


def _span(run: Json, above: str) -> Span:
    parent = str(run.get("parent_run_id") or above or "")
    kind = _KINDS.get(str(run.get("run_type")), "")
    error = run.get("error")
    span = Span(
        trace=str(run.get("trace_id") or _root(run) or run.get("session_id") or run.get("id")),
        id=str(run.get("id")),
        parent=parent,
        kind=kind,
        name=str(run.get("name")),
        start=when(run.get("start_time")),
        end=when(run.get("end_time")),
        error=str(error) if error else None,
    )
    inputs, outputs = run.get("inputs"), run.get("outputs")
    if kind == "tool":
        _read_tool(span, inputs, outputs)
    elif kind == "llm":
        _read_model(span, run, inputs, outputs)
    elif not parent:
        span.kind, span.goal = "agent", prompt_text(inputs)
    if not span.kind:
        span.raw = {name: value for name, value in run.items() if name != "child_runs"}
    return span


def _root(run: Json) -> str:
    """Return the trace's id, with which the first part of `dotted_order` ends."""
    first = str(run.get("dotted_order") or "").partition(".")[0]
    return first.partition("Z")[2]


def _read_tool(span: Span, inputs: Any, outputs: Any) -> None:
    given = inputs
    if isinstance(inputs, dict) and set(inputs) == {"input"}:
        given = _python_or_json(inputs["input"])
    span.args = as_args(given)
    output = outputs.get("output", outputs) if isinstance(outputs, dict) else outputs
    if isinstance(output, dict):
        message = output.get("kwargs") if "lc" in output else output
        inner: Json = message if isinstance(message, dict) else {}
        if "tool_call_id" in inner:
            span.call_id = str(inner["tool_call_id"])
            output = inner.get("content")
            if inner.get("status") == "error" and span.error is None:
                span.error = str(output)
    if output is not None:
        span.result = as_value(output)


def _python_or_json(text: Any) -> Any:
    """Read a tool's input, which LangChain writes as the text of a Python dict."""
    if isinstance(text, str) and text.startswith("{'"):
        import ast

        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            return text
    return as_value(text)


def _read_model(span: Span, run: Json, inputs: Any, outputs: Any) -> None:
    messages = inputs.get("messages") if isinstance(inputs, dict) else None
    if isinstance(messages, list) and messages and isinstance(messages[0], list):
        messages = messages[0]
    if messages is None and isinstance(inputs, dict):
        messages = inputs.get("prompts")
    span.hear(*read_messages(messages or []))
    span.answer(*read_messages(_answers(outputs)))
    tokens = run.get("total_tokens")
    span.tokens = tokens if isinstance(tokens, int) else None


def _answers(outputs: Any) -> list[Any]:
    if not isinstance(outputs, dict):
        return []
    generations = outputs.get("generations")
    if isinstance(generations, list):
        flat = [
            one for group in generations for one in (group if isinstance(group, list) else [group])
        ]
        return [one.get("message") or one.get("text") for one in flat if isinstance(one, dict)]
    choices = outputs.get("choices")
    if isinstance(choices, list):
        return [one.get("message") for one in choices if isinstance(one, dict)]
    found = outputs.get("messages") or outputs.get("output") or outputs
    return found if isinstance(found, list) else [found]


IMPORTER = span_importer(NAME, "LangSmith runs", _is_langsmith, spans_of)
