"""OpenTelemetry's own exporter sends to the service, and what it sends becomes traces."""

import gzip
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import httpx
import pytest

from em import Memory

TOKEN = "a-token-that-is-long-enough"
TRACE = "0af7651916cd43dd8448eb211c80319c"


def export(number: int, *, trace: str = TRACE, **attributes: str) -> dict[str, Any]:
    named = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": f"tool{number}"}
    pairs = {**named, **{name.replace("__", "."): value for name, value in attributes.items()}}
    span = {
        "traceId": trace,
        "spanId": f"{number:016x}",
        "name": "x",
        "startTimeUnixNano": str(10**18 + number),
        "endTimeUnixNano": str(10**18 + number + 10**6),
        "attributes": [
            {"key": name, "value": {"stringValue": value}} for name, value in pairs.items()
        ],
    }
    return {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}


def run_an_agent(endpoint: str, headers: dict[str, str] | None = None) -> None:
    """An agent that is traced by the real SDK, and exported by the real exporter."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider()
    provider.add_span_processor(
        BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint, headers=headers))
    )
    tracer = provider.get_tracer("test")
    asked = [{"role": "user", "parts": [{"type": "text", "content": "what of #W1?"}]}]
    with tracer.start_as_current_span("invoke_agent shop") as agent:
        agent.set_attribute("gen_ai.operation.name", "invoke_agent")
        agent.set_attribute("gen_ai.agent.name", "shop")
        with tracer.start_as_current_span("chat m") as model:
            model.set_attribute("gen_ai.operation.name", "chat")
            model.set_attribute("gen_ai.input.messages", json.dumps(asked))
            model.set_attribute("gen_ai.usage.input_tokens", 50)
        with tracer.start_as_current_span("execute_tool look_up") as tool:
            tool.set_attribute("gen_ai.operation.name", "execute_tool")
            tool.set_attribute("gen_ai.tool.name", "look_up")
            tool.set_attribute("gen_ai.tool.call.arguments", json.dumps({"order_id": "#W1"}))
            tool.set_attribute("gen_ai.tool.call.result", json.dumps({"status": "pending"}))
        with suppress(ValueError), tracer.start_as_current_span("execute_tool cancel") as tool:
            tool.set_attribute("gen_ai.operation.name", "execute_tool")
            tool.set_attribute("gen_ai.tool.name", "cancel")
            raise ValueError("no such order")
    provider.shutdown()


@pytest.mark.filterwarnings("ignore")  # of the library, about its own future
def test_what_the_real_exporter_sends_becomes_a_trace(serve: Callable[..., Any]) -> None:
    service = serve(env={"EM_API_TOKEN": TOKEN})
    run_an_agent(f"{service.url}/v1/traces", {"Authorization": f"Bearer {TOKEN}"})
    assert service.stop() == 0
    with Memory("em.db") as memory:
        (kept,) = memory.traces()
    trace = kept.trace
    assert (trace.mission.goal, trace.usage.tokens) == ("what of #W1?", 50)
    first, second = trace.calls
    assert (first.args, first.result) == ({"order_id": "#W1"}, {"status": "pending"})
    assert "no such order" in str(second.error)


def test_spans_of_one_trace_may_come_in_many_exports_and_come_once(service: Any) -> None:
    for number in (2, 1, 2, 3):
        assert service.post("/v1/traces", export(number)).json() == {"partialSuccess": {}}
    with Memory("em.db") as memory:
        (kept,) = memory.traces()
        assert sorted(call.tool for call in kept.trace.calls) == ["tool1", "tool2", "tool3"]  # type: ignore[union-attr]
        assert memory.log.verify().ok


def test_it_keeps_the_rules_of_the_service(serve: Callable[..., Any]) -> None:
    service = serve(env={"EM_API_TOKEN": TOKEN, "EM_API_MAX_REQUEST_BYTES": "20000"})
    assert service.post("/v1/traces", export(1)).status_code == 401
    known = {"Authorization": f"Bearer {TOKEN}"}

    def send(body: bytes, **headers: str) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return service.http.post("/v1/traces", content=body, headers={**known, **named})  # type: ignore[no-any-return]

    large = json.dumps(export(1, gen_ai__tool__call__result="x" * 30_000)).encode()
    assert send(large, Content_Type="application/json").status_code == 413
    # What is small on the way and large when it is unpacked is refused too.
    packed = gzip.compress(large)
    assert send(packed, Content_Type="application/json", Content_Encoding="gzip").status_code == 413
    small = gzip.compress(json.dumps(export(1)).encode())
    assert send(small, Content_Type="application/json", Content_Encoding="gzip").status_code == 200
    for body, headers in (
        (b"{", {"Content_Type": "application/json"}),
        (b"\xff\xff\xff", {"Content_Type": "application/x-protobuf"}),
        (b"hello", {"Content_Type": "text/plain"}),
        (b"no gzip", {"Content_Type": "application/json", "Content_Encoding": "gzip"}),
        (b"{}", {"Content_Type": "application/json", "Content_Encoding": "br"}),
    ):
        answer = send(body, **headers)
        assert (answer.status_code, "error" in answer.json()) == (400, True)


def test_a_token_of_one_subject_writes_of_that_subject_only(serve: Callable[..., Any]) -> None:
    from pathlib import Path

    Path("em.yaml").write_text(
        "api: {tokens: [{env: ANNA_TOKEN, subjects: [anna]}, {env: READ_TOKEN, access: read}]}"
    )
    service = serve(env={"ANNA_TOKEN": TOKEN, "READ_TOKEN": TOKEN[::-1]})
    anna = {"Authorization": f"Bearer {TOKEN}"}
    assert service.post("/v1/traces", export(1), **anna).status_code == 200
    other = service.post("/v1/traces", export(2), **anna, **{"X-Em-Subject": "bob"})
    assert other.status_code == 403
    read = service.post("/v1/traces", export(1), Authorization=f"Bearer {TOKEN[::-1]}")
    assert read.status_code == 403
    service.stop()
    with Memory("em.db") as memory:
        assert [kept.subject for kept in memory.traces()] == ["anna"]


def test_spans_with_the_trace_id_of_another_subject_begin_a_trace_of_their_own(
    serve: Callable[..., Any],
) -> None:
    from pathlib import Path

    bobs = "a-token-of-bob-0123456789"
    Path("em.yaml").write_text(
        "api: {tokens: [{env: ANNA_TOKEN, subjects: [anna]}, {env: BOB_TOKEN, subjects: [bob]}]}"
    )
    service = serve(env={"ANNA_TOKEN": TOKEN, "BOB_TOKEN": bobs})
    anna, bob = ({"Authorization": f"Bearer {token}"} for token in (TOKEN, bobs))
    assert service.post("/v1/traces", export(1), **anna).status_code == 200
    before = service.http.get("/trajectories", headers=anna).json()
    (hers,) = before["items"]
    whole = service.http.get(f"/trajectories/{hers['id']}", headers=anna).json()
    for _ in range(2):
        assert service.post("/v1/traces", export(2), **bob).status_code == 200
    (his,) = service.http.get("/trajectories", headers=bob).json()["items"]
    assert his["id"] != hers["id"]
    assert service.http.get(f"/trajectories/{hers['id']}", headers=bob).status_code == 404
    assert service.http.get(f"/trajectories/{hers['id']}", headers=anna).json() == whole
    assert service.http.get("/trajectories", headers=anna).json() == before


@pytest.mark.parametrize(
    "scope",
    [
        "1970", [[]], [{"spans": 7}], [{"spans": ["x"]}], [{"spans": [{"attributes": -1e308}]}],
        [{"spans": [{"attributes": [{"key": "a", "value": {"intValue": []}}]}]}],
        [{"spans": [{"events": ["x"]}]}],
    ],
)  # fmt: skip
def test_a_span_of_another_shape_is_refused_and_no_failure(shared: Any, scope: Any) -> None:
    body = {"resourceSpans": [{"scopeSpans": scope}]}
    answer = shared.post("/v1/traces", body)
    assert answer.status_code == 400
    assert answer.json()["error"]["place"] == "body"
