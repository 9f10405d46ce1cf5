"""Spans: what tracing tools record of an agent, turned into traces.

A tool's span is a call. A model's span has the conversation so far and the answer; each message is
added once, though spans repeat it. A call that appears only in a model's answer is added too, and
answers and later conversations fill in what a tool's own span lacks. An agent's span inside of
another agent's is a sub-agent, with a trace of its own.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal, TypeVar

import msgspec

from em.traces.formats import Importer, Reader
from em.traces.formats._messages import (
    as_args,
    as_value,
    ended_by,
    first_of,
    read_messages,
    text_of,
    text_or_json,
)
from em.traces.intake import Incoming, Intake
from em.traces.model_request import Called, Ended, Said
from em.values.canonical import Json

Kind = Literal["tool", "llm", "agent", ""]
BATCH_BYTES = 16 * 1024 * 1024
"""Bytes of spans that are read before they are added: a trace's spans stand close together."""
_LAST = datetime.max.replace(tzinfo=UTC)
NamedT = TypeVar("NamedT", "Called", "Ended")


class Span(msgspec.Struct, kw_only=True):
    """One span: a tool's with arguments and result, a model's with its conversation."""

    trace: str
    id: str
    parent: str = ""
    kind: Kind = ""
    name: str = ""
    start: datetime | None = None
    end: datetime | None = None
    error: str | None = None
    call_id: str = ""
    args: Json | None = None
    result: Any = msgspec.UNSET
    tokens: int | None = None
    cost: float = 0.0
    heard: Sequence[Said] = ()
    answered: Sequence[Said] = ()
    asked_for: Sequence[Called] = ()
    earlier: Sequence[Called] = ()
    results: Sequence[Ended] = ()
    goal: str = ""
    output: Any = msgspec.UNSET
    raw: Any = None

    def hear(self, texts: Sequence[Said], earlier: Sequence[Called], ends: Sequence[Ended]) -> None:
        """Add what a model was sent: texts, and calls of before with their results."""
        self.heard = [*self.heard, *texts]
        self.earlier = [*self.earlier, *earlier]
        self.results = [*self.results, *ends]

    def answer(self, texts: Sequence[Said], asked: Sequence[Called], _: Sequence[Ended]) -> None:
        """Add what a model answered: texts, and the calls that it asks for."""
        self.answered = [*self.answered, *(Said("assistant", one.text) for one in texts)]
        self.asked_for = [*self.asked_for, *asked]


def span_importer(
    name: str, title: str, fits: Callable[[Any], bool], spans_of: Callable[[Any], Iterable[Span]]
) -> Importer:
    """Return the importer of a format of spans; `spans_of` finds the spans of one value."""
    reader = partial(_SpanReader, name, spans_of)
    return Importer(name=name, title=title, fits=fits, reader=reader)


class _SpanReader(Reader):
    """Read values that contain spans."""

    def __init__(
        self, name: str, spans_of: Callable[[Any], Iterable[Span]], intake: Intake
    ) -> None:
        super().__init__(intake)
        self._name, self._spans_of = name, spans_of
        self._batch: list[Span] = []
        self._bytes = 0

    def read(self, value: Any) -> None:
        """Read the spans of one value."""
        found = list(self._spans_of(value))
        if not found:
            self.intake.unknown("no span")
        self._batch += found
        self._bytes += len(self.intake.raw)
        if self._bytes > BATCH_BYTES:
            self.end()

    def end(self) -> None:
        """Add the spans that were read."""
        add_spans(self.intake, self._name, self._batch)
        self._batch, self._bytes = [], 0


def add_spans(intake: Intake, name: str, spans: Sequence[Span]) -> None:
    """Add spans, of any number of traces, to an intake."""
    by_trace: dict[str, list[Span]] = {}
    for span in spans:
        by_trace.setdefault(span.trace, []).append(span)
    for trace_id, own in by_trace.items():
        _SpanTrace(intake, name, trace_id, own).add_all()
        intake.after_value()


def _numbered(spans: Sequence[Span]) -> list[Span]:
    """Tell calls that share an id apart: the second one of an id gets a number, and so on.

    In a conversation calls and results are in order. Of tools' spans, one that begins after
    another of its id has ended is another call; at the same time it is the same call.
    """
    made: list[Span] = []
    last: dict[str, tuple[Span, int]] = {}
    for span in spans:
        asked: Counter[str] = Counter()
        given: Counter[str] = Counter()
        changed = msgspec.structs.replace(
            span,
            earlier=[_with_number(call, asked) for call in span.earlier],
            asked_for=[_with_number(call, asked) for call in span.asked_for],
            results=[_with_number(one, given) for one in span.results],
        )
        if span.kind == "tool" and span.call_id:
            before, number = last.get(span.call_id, (None, 0))
            if before is None or (span.start and before.end and span.start >= before.end):
                number += 1
                last[span.call_id] = span, number
            changed.call_id = _number(span.call_id, number)
        made.append(changed)
    return made


def _with_number(one: NamedT, seen: Counter[str]) -> NamedT:
    seen[one.id] += 1
    return msgspec.structs.replace(one, id=_number(one.id, seen[one.id]))


def _number(call_id: str, number: int) -> str:
    return call_id if number == 1 or not call_id else f"{call_id} ({number})"


class _SpanTrace:
    """The spans of one trace."""

    def __init__(self, intake: Intake, name: str, trace_id: str, spans: list[Span]) -> None:
        self._intake, self._name, self._trace_id = intake, name, trace_id
        spans = _numbered(sorted(spans, key=lambda span: span.start or _LAST))
        self._spans = spans
        self._by_id = {span.id: span for span in spans}
        self._keys: dict[str, str] = {}
        self._traces: dict[str, Incoming] = {}
        self._seen_texts: dict[str, Counter[Said]] = {}
        self._results: dict[str, Ended] = {}
        self._asked: dict[str, Called] = {}
        self._told: dict[str, Json] = {}
        for span in spans:
            self._results.update({one.id: one for one in span.results})
            for call in (*span.earlier, *span.asked_for):
                if call.id:
                    self._asked.setdefault(call.id, call)

    def add_all(self) -> None:
        in_order: list[tuple[datetime, int, Callable[[], None]]] = []
        calls = self._calls_without_spans()
        at_start: dict[Kind, Callable[[Span], None]] = {
            "llm": self._hear, "tool": self._call, "agent": self._agent, "": self._unknown,
        }  # fmt: skip
        for n, span in enumerate(self._spans):
            in_order.append((span.start or _LAST, n, partial(at_start[span.kind], span)))
            if span.kind == "llm":
                end = span.end or span.start or _LAST
                in_order.append((end, n, partial(self._answer, span, calls)))
        for _, _, add in sorted(in_order, key=lambda item: item[:2]):
            add()
        self._end()

    def _hear(self, span: Span) -> None:
        trace = self._trace_of(span)
        heard: Counter[Said] = Counter()
        for one in span.heard:
            heard[one] += 1
            self._say(trace, one, heard[one], span.start)

    def _answer(self, span: Span, calls: dict[str, list[Called]]) -> None:
        trace = self._trace_of(span)
        if self._outermost_llm(span) is span:
            inner = (one.tokens for one in self._spans if one.parent == span.id and one.tokens)
            tokens = next(inner, None) if span.tokens is None else span.tokens
            trace.spent(tokens, cost=span.cost)
        heard = Counter(span.heard)
        for one in span.answered:
            self._say(trace, one, heard[one] + 1, span.end)
        for n, call in enumerate(calls.get(span.id, ())):
            key = f"call {call.id}" if call.id else f"call {span.id} {n}"
            trace.call(call.name, call.args, call.id, span.end, key=key)
            found = self._results.get(call.id)
            if found is not None:
                trace.result(call.id, found.result, found.error)

    def _say(self, trace: Incoming, one: Said, time: int, at: datetime | None) -> None:
        """Add a message unless it was added `time` times: every span repeats the conversation."""
        seen = self._seen_texts.setdefault(trace.id, Counter())
        if one.text and seen[one] < time:
            seen[one] = time
            trace.say(one.role, one.text, at, key=f"said {one.role} {time} {one.text}")

    def _call(self, span: Span) -> None:
        trace = self._trace_of(span)
        asked = self._asked.get(span.call_id)
        args = span.args if span.args is not None else (asked.args if asked else {})
        call_id = span.call_id or f"span {span.id}"
        key = f"call {span.call_id}" if span.call_id else f"span {span.id}"
        told = self._told.setdefault(key, args)
        if told.keys() == args.keys() and told != args:
            trace.incomplete = f"two calls of `{span.name}` at the same time share an id"
        trace.call(span.name, args, call_id, span.start, key=key)
        result, error, took = span.result, span.error, None
        if result is msgspec.UNSET:
            found = self._results.get(call_id, Ended(call_id, None))
            result, error = found.result, found.error if error is None else error
        if span.start is not None and span.end is not None:
            took = (span.end - span.start).total_seconds() * 1e3
        if error is not None or result is not None or span.end is not None:
            shown = None if error is not None else result
            trace.result(call_id, shown, error, span.end, duration_ms=took)

    def _agent(self, span: Span) -> None:
        trace = self._trace_of(span)
        if span.goal and not trace.goal:
            trace.goal = span.goal
        if span.output is not msgspec.UNSET and trace.output is msgspec.UNSET:
            trace.output = span.output

    def _unknown(self, span: Span) -> None:
        """Store a span verbatim that is neither an agent's, nor a tool's, nor a model's."""
        text = text_or_json(span.raw)
        self._trace_of(span).unknown(f"span {span.name}", text, key=f"unknown {span.id}")

    def _calls_without_spans(self) -> dict[str, list[Called]]:
        """Return the calls that answers ask for and no tool's span has, by the answer's span."""
        spans = [span for span in self._spans if span.kind == "tool"]
        with_id = {span.call_id for span in spans if span.call_id}
        by_name = Counter(span.name for span in spans if not span.call_id)
        found: dict[str, list[Called]] = {}
        known: set[Any] = set(with_id)
        for span in self._spans:
            if span.kind != "llm":
                continue
            outer = self._outermost_llm(span)
            for n, call in enumerate(span.asked_for):
                one = call.id or (outer.id, n, call.name)
                if one in known:
                    continue
                known.add(one)
                if by_name[call.name] > 0:
                    by_name[call.name] -= 1
                    self._fill_in(spans, call)
                else:
                    found.setdefault(span.id, []).append(call)
        if not found and not spans:
            self._add_earlier(found)
        return found

    def _fill_in(self, spans: Sequence[Span], call: Called) -> None:
        """Fill id and arguments of a call into a tool's span that has no id."""
        for span in spans:
            if not span.call_id and span.name == call.name:
                span.call_id = call.id
                span.args = call.args if span.args is None else span.args
                return

    def _add_earlier(self, found: dict[str, list[Called]]) -> None:
        """Add calls that only the conversation has, at the span with the longest one."""
        models = [span for span in self._spans if span.kind == "llm" and span.earlier]
        if models:
            longest = max(models, key=lambda span: len(span.earlier))
            found[longest.id] = list(longest.earlier)

    def _outermost_llm(self, span: Span) -> Span:
        """Return the outermost of the spans that have the same answer."""
        found = span
        for up in self._above(span):
            if up.kind == "llm":
                found = up
            elif up.kind:
                break
        return found

    def _above(self, span: Span) -> Iterator[Span]:
        """Yield the spans around a span, from the inside out; in a circle, each once."""
        seen, up = {span.id}, self._by_id.get(span.parent)
        while up is not None and up.id not in seen:
            seen.add(up.id)
            yield up
            up = self._by_id.get(up.parent)

    def _trace_of(self, span: Span) -> Incoming:
        agents = self._agents_above(span)
        key, outer = self._trace_id, ""
        trace = self._open(key, agents[0].name if agents else "")
        for agent in agents[1:]:
            outer, key = trace.id, f"{self._trace_id}/{agent.id}"
            known = key in self._traces
            trace = self._open(key, agent.name)
            if not known:
                trace.parent, trace.parent_call = outer, self._spawned_by(agent)
        return trace

    def _open(self, key: str, agent: str) -> Incoming:
        if key not in self._traces:
            app = {"agent": agent} if agent else {}
            self._traces[key] = self._intake.trace(key, self._name, trace=self._trace_id, **app)
        return self._traces[key]

    def _agents_above(self, span: Span) -> list[Span]:
        """Return the agents above a span, outermost first; two spans of one agent count once."""
        path = [up for up in (span, *self._above(span)) if up.kind == "agent"]
        agents: list[Span] = []
        for agent in reversed(path):
            if not agents or _plain(agent.name) != _plain(agents[-1].name):
                agents.append(agent)
        return agents

    def _spawned_by(self, agent: Span) -> str | None:
        up = next((up for up in self._above(agent) if up.kind in ("tool", "agent")), None)
        return (up.call_id or f"span {up.id}") if up and up.kind == "tool" else None

    def _end(self) -> None:
        roots = [span for span in self._spans if span.parent not in self._by_id]
        main = self._traces.get(self._trace_id)
        failed = any(span.error is not None and not span.parent for span in roots)
        if failed and main is not None and main.outcome == "unknown":
            main.outcome = "failure"
        for key, trace in self._traces.items():
            if not trace.goal:
                trace.goal = next((span.goal or span.name for span in roots), "")
            trace.close()
            self._intake.forget(key)


def _plain(name: str) -> str:
    return name.lower().replace("-", "_").removeprefix("invoke_agent").strip(" _")


def prompt_text(value: Any) -> str:
    """Return the user's request from an agent's input of any form."""
    if not isinstance(value, dict | list):
        return "" if value is None else text_or_json(value)
    if isinstance(value, dict):
        for name in ("task", "input", "question", "query", "prompt", "text", "content"):
            if isinstance(value.get(name), str):
                return str(value[name])
        value = value.get("messages") or []
    texts, _, _ = read_messages(value)
    return next((one.text for one in texts if one.role == "user"), "")


_MODELS = frozenset({"chat", "text_completion", "generate_content", "completion", "responses"})
_KINDS: dict[str, Kind] = {
    "tool": "tool", "llm": "llm", "agent": "agent", "execute_tool": "tool",
    "invoke_agent": "agent", **dict.fromkeys(_MODELS, "llm"),
}  # fmt: skip
_ARGS = (
    "gen_ai.tool.call.arguments", "gcp.vertex.agent.tool_call_args", "input.value",
    "traceloop.entity.input", "tool_arguments",
)  # fmt: skip
_RESULTS = (
    "gen_ai.tool.call.result", "gcp.vertex.agent.tool_response", "output.value",
    "traceloop.entity.output", "tool_response",
)  # fmt: skip
_MCP = frozenset({"content", "isError", "structuredContent", "_meta", "meta"})
_GIVEN = ("gen_ai.input.messages", "gen_ai.prompt")
_GAVE = ("gen_ai.output.messages", "gen_ai.completion")
_INDEXED = re.compile(
    r"(?:gen_ai\.(prompt|completion)|llm\.(input|output)_messages)\.(\d+)\.(?:message\.)?(.+)"
)
_CALL = re.compile(r"tool_calls\.(\d+)\.(?:tool_call\.)?(?:function\.)?(id|name|arguments)")
_TOKENS = (
    ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt"),
    ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion"),
)


def span_from(
    attributes: Json,
    *,
    trace: str,
    own: str,
    parent: str,
    name: str,
    start: datetime | None,
    end: datetime | None,
    error: str | None,
    events: list[tuple[str, Json]],
    raw: Json,
) -> Span:
    """Make a span from its attributes."""
    kind = _kind(attributes)
    span = Span(
        trace=trace, id=own, parent=parent, kind=kind, name=name, start=start, end=end, error=error,
        raw=None if kind else raw,
    )  # fmt: skip
    if kind == "tool":
        _read_tool(span, attributes)
    elif kind == "llm":
        _read_model(span, attributes, events)
    elif kind == "agent":
        named = first_of(attributes, ("gen_ai.agent.name", "agent.name", "traceloop.entity.name"))
        span.name = str(named or name)
        given = as_value(first_of(attributes, ("gen_ai.input.messages", "input.value")))
        span.goal = prompt_text(given)
        if "output.value" in attributes:
            span.output = as_value(attributes["output.value"])
    return span


def _kind(attributes: Json) -> Kind:
    kind = first_of(
        attributes, ("gen_ai.operation.name", "openinference.span.kind", "traceloop.span.kind")
    )
    if kind is not None:
        return _KINDS.get(str(kind).lower(), "")
    is_model = any(
        name in attributes
        for name in ("gen_ai.completion.0.role", "llm.request.type", "llm.model_name")
    ) or ("gen_ai.request.model" in attributes and "gen_ai.tool.name" not in attributes)
    if is_model:
        return "llm"
    return "tool" if "gen_ai.tool.name" in attributes else ""


def _read_tool(span: Span, attributes: Json) -> None:
    named = first_of(attributes, ("gen_ai.tool.name", "tool.name", "traceloop.entity.name"))
    span.name = str(named or span.name.removeprefix("execute_tool").strip())
    call_id = first_of(attributes, ("gen_ai.tool.call.id", "tool_call.id", "tool.id"))
    span.call_id = str(call_id or "")
    given = first_of(attributes, _ARGS)
    if given is not None:
        span.args = _by_name(as_args(given), attributes.get("tool.parameters"))
    gave = first_of(attributes, _RESULTS)
    if gave is not None:
        span.result = _result(as_value(gave))


def _by_name(args: Json, parameters: Any) -> Json:
    """Name the arguments that a wrapper took by position (smolagents)."""
    if not {"args", "kwargs"} <= args.keys() or not isinstance(args["args"], list):
        return args
    known = as_args(parameters)
    known = known.get("properties", known)
    names = [*known, *(f"arg{n}" for n in range(len(known), len(args["args"])))]
    by_place = dict(zip(names, args["args"], strict=False))
    return {**by_place, **as_args(args["kwargs"])}


def _result(value: Any) -> Any:
    """Unwrap a result of MCP."""
    if (
        isinstance(value, dict)
        and isinstance(value.get("content"), list)
        and value.get("isError") is not True
        and value.keys() <= _MCP
    ):
        return as_value(value["content"])
    return value


def _read_model(span: Span, attributes: Json, events: list[tuple[str, Json]]) -> None:
    for name, attributes_of_event in events:
        if name.startswith("gen_ai."):
            _read_event(span, name, attributes_of_event)
    heard, answered = _indexed(attributes)
    for names, into in ((_GIVEN, heard), (_GAVE, answered)):
        given = as_value(first_of(attributes, names))
        if isinstance(given, list):
            into.extend(given)
    system = as_value(attributes.get("gen_ai.system_instructions"))
    if system:
        heard.insert(
            0, {"role": "system", "parts": system if isinstance(system, list) else [system]}
        )
    if not heard and not answered:
        _read_vertex(heard, answered, attributes)
    if not answered and isinstance(attributes.get("output.value"), str):
        answered.append({"role": "assistant", "content": attributes["output.value"]})
    span.hear(*read_messages(heard))
    span.answer(*read_messages(answered))
    span.tokens = _tokens(attributes)


def _tokens(attributes: Json) -> int | None:
    total = first_of(attributes, ("llm.usage.total_tokens", "llm.token_count.total"))
    counted = [first_of(attributes, names) for names in _TOKENS]
    numbers = [int(one) for one in counted if str(one).isdecimal()]
    if numbers:
        return sum(numbers)
    return int(total) if str(total).isdecimal() else None


def _indexed(attributes: Json) -> tuple[list[Json], list[Json]]:
    """Return messages that were written as one attribute per field."""
    found: dict[tuple[bool, int], Json] = {}
    for name, value in attributes.items():
        match = _INDEXED.fullmatch(name)
        if match is None:
            continue
        given, heard, number, field = match.groups()
        is_answer = given == "completion" or heard == "output"
        message = found.setdefault((is_answer, int(number)), {})
        call = _CALL.fullmatch(field)
        if call is not None:
            calls = message.setdefault("calls", {})
            calls.setdefault(int(call.group(1)), {})[call.group(2)] = value
        elif field.startswith("contents.") and field.endswith(".text"):
            message.setdefault("content", []).append({"type": "text", "text": value})
        else:
            message.setdefault(field, value)
    parted: tuple[list[Json], list[Json]] = ([], [])
    for is_answer, number in sorted(found):
        message = found[is_answer, number]
        calls = message.pop("calls", {})
        message["tool_calls"] = [calls[n] for n in sorted(calls)]
        message.setdefault("role", "assistant" if is_answer else "user")
        parted[is_answer].append(message)
    return parted


def _read_event(span: Span, name: str, attributes: Json) -> None:
    """Read the conversation from an event, as older spans have it."""
    role = name.removeprefix("gen_ai.").removesuffix(".message")
    if role == "choice":
        message = as_value(attributes.get("message")) or attributes
        span.answer(*read_messages([{"role": "assistant", **_mapping(message)}]))
        return
    if role == "tool":
        own = attributes.get("id") or attributes.get("gen_ai.tool.call.id")
        span.hear((), (), [ended_by(attributes, attributes.get("content"), str(own))])
        return
    fields = {**attributes, "tool_calls": as_value(attributes.get("tool_calls")) or []}
    if role in ("user", "system", "assistant"):
        span.hear(*read_messages([{**fields, "role": role}]))


def _mapping(value: Any) -> Json:
    return value if isinstance(value, dict) else {"content": text_of(value)}


def _read_vertex(heard: list[Json], answered: list[Json], attributes: Json) -> None:
    """Read the conversation as Google's agent kit writes it."""
    request = as_value(attributes.get("gcp.vertex.agent.llm_request"))
    answer = as_value(attributes.get("gcp.vertex.agent.llm_response"))
    if isinstance(request, dict):
        heard += [one for one in request.get("contents") or () if isinstance(one, dict)]
    if isinstance(answer, dict) and isinstance(answer.get("content"), dict):
        answered.append(answer["content"])
