"""Traces and metrics of em itself: off by default, and without anything that was said."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.children import wait_until

from em import Memory, telemetry
from em.errors import StoreError
from em.llm.providers import ScriptedClient
from em.serve.app import make_app
from em.settings import Settings

MARKER = "marker-of-a-person"
ROUTINE = """\
name: greet
input_schema: {type: object, properties: {who: {type: string}}, required: [who]}
steps:
  - {id: say, type: tool.call, tool: say, args: {who: "{{ who }}"}, effect: read, save_as: said}
  - {id: out, type: return, value: "{{ said }}"}
"""


class Seen:
    """What was exported."""

    def __init__(self, spans: InMemorySpanExporter, reader: InMemoryMetricReader) -> None:
        self._spans = spans
        self._reader = reader

    @property
    def spans(self) -> list[Any]:
        return list(self._spans.get_finished_spans())

    def named(self, name: str) -> list[Any]:
        return [span for span in self.spans if span.name == name]

    def metrics(self) -> dict[str, list[tuple[dict[str, Any], Any]]]:
        data = self._reader.get_metrics_data()
        return {
            metric.name: [
                (dict(point.attributes), getattr(point, "value", getattr(point, "count", None)))
                for point in metric.data.data_points
            ]
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def text(self) -> str:
        shown = [span.to_json() for span in self.spans]
        return "\n".join(shown) + repr(self.metrics())


@pytest.fixture
def seen() -> Iterator[Seen]:
    spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
    traces = TracerProvider()
    traces.add_span_processor(SimpleSpanProcessor(spans))
    assert telemetry.start(traces=traces, metrics=MeterProvider([reader]))
    yield Seen(spans, reader)
    telemetry.stop()
    assert not telemetry.is_on()


def routine(folder: Path) -> Path:
    (folder / "greet").mkdir()
    (folder / "greet" / "routine.yaml").write_text(ROUTINE)
    return folder / "greet"


def test_a_run_is_a_span_with_its_steps_and_commits_inside(seen: Seen, tmp_path: Path) -> None:
    def say(who: str) -> str:
        return f"hello {who}"

    with Memory("em.db") as memory:
        result = memory.run(routine(tmp_path), {"who": MARKER}, {"say": say})
        assert result.output == f"hello {MARKER}"
    (run,) = seen.named("em.run")
    assert dict(run.attributes) == {"em.routine": "greet", "em.run.outcome": "ok"}
    (step,) = seen.named("em.step")
    assert step.parent.span_id == run.context.span_id
    assert step.attributes["em.tool"] == "say"
    inside = [span for span in seen.named("em.commit") if span.parent]
    assert {span.parent.span_id for span in inside} == {run.context.span_id}
    metrics = seen.metrics()
    assert metrics["em.runs"] == [({"em.run.outcome": "ok"}, 1)]
    assert metrics["em.commits"][0][1] == len(seen.named("em.commit"))
    assert MARKER not in seen.text()


def test_a_failing_step_has_its_kind_and_not_its_words(seen: Seen, tmp_path: Path) -> None:
    def say(who: str) -> str:
        raise LookupError(f"no {who}")

    with Memory("em.db") as memory:
        assert memory.run(routine(tmp_path), {"who": MARKER}, {"say": say}).status == "failed"
    (step,) = seen.named("em.step")
    assert step.attributes["error.type"] == "LookupError"
    assert not step.events
    (run,) = seen.named("em.run")
    assert run.attributes["em.run.outcome"] == "failed"
    assert seen.metrics()["em.runs"] == [({"em.run.outcome": "failed"}, 1)]
    assert MARKER not in seen.text()


def test_a_request_is_named_by_its_route_and_continues_its_callers_trace(seen: Seen) -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"

    async def ask() -> None:
        with Memory("em.db") as memory:
            app = make_app(memory, Settings())
            transport = httpx.ASGITransport(app=app)
            headers = {"traceparent": f"00-{trace}-b7ad6b7169203331-01"}
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
                said = {"subject": MARKER, "text": f"{MARKER} said so"}
                kept = await http.post("/observations", json=said, headers=headers)
                assert kept.status_code == 201
                missing = await http.get(f"/heuristics/{MARKER}?task={MARKER}")
                assert missing.status_code == 404

    asyncio.run(ask())
    (post,) = seen.named("POST /observations")
    assert f"{post.context.trace_id:032x}" == trace
    assert dict(post.attributes) == {
        "http.request.method": "POST",
        "http.route": "/observations",
        "http.response.status_code": 201,
    }
    commits = [span for span in seen.named("em.commit") if span.context.trace_id == int(trace, 16)]
    assert commits
    assert {f"{span.parent.span_id:x}" for span in commits} == {f"{post.context.span_id:x}"}
    times = seen.metrics()["http.server.request.duration"]
    assert {
        (one["http.route"], one["http.response.status_code"], count) for one, count in times
    } == {
        ("/observations", 201, 1),
        ("/heuristics/{heuristic_id}", 404, 1),
    }
    assert MARKER not in seen.text()


def test_a_model_call_has_its_model_and_tokens(seen: Seen) -> None:
    client = ScriptedClient([f"{MARKER} is fine"])
    assert client.complete(MARKER).text == f"{MARKER} is fine"
    (call,) = seen.named("em.model_call")
    assert set(call.attributes) == {
        "gen_ai.request.model",
        "gen_ai.usage.input_tokens",
        "gen_ai.usage.output_tokens",
    }
    assert MARKER not in seen.text()


def test_what_is_watched_is_read_when_it_is_collected(seen: Seen) -> None:
    depth = {"queued": 4, "running": 1}
    telemetry.watch("em.queue.depth", "em.job.state", lambda: depth)
    assert {one["em.job.state"]: n for one, n in seen.metrics()["em.queue.depth"]} == depth

    def away() -> dict[str, int]:
        raise StoreError("the store is away")

    telemetry.watch("em.gone", "x", away)
    assert not seen.metrics().get("em.gone")


OFF = """
import sys
from em import Memory, telemetry
import em.serve.guard
assert telemetry.start() is False
with Memory("em.db") as memory:
    memory.observe("ana", "hello")
with telemetry.span("x") as span:
    span.set("a", 1)
telemetry.count("n")
telemetry.watch("w", "l", dict)
telemetry.stop()
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""


def test_nothing_is_imported_where_it_is_off() -> None:
    ran = subprocess.run([sys.executable, "-c", OFF], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"OTEL_SDK_DISABLED": "true", telemetry.ENDPOINT: "http://127.0.0.1:1"},
        {"OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none", telemetry.ENDPOINT: "x"},
        {"OTEL_SERVICE_NAME": "em"},
    ],
)
def test_it_is_off_unless_a_variable_says_where_to(environ: dict[str, str]) -> None:
    assert telemetry.start(environ) is False
    assert not telemetry.is_on()


def test_the_standard_variables_send_it_to_a_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    paths: list[str] = []
    bodies: list[bytes] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            paths.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_args: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            monkeypatch.setenv(telemetry.ENDPOINT, f"http://127.0.0.1:{server.server_port}")
            monkeypatch.setenv("OTEL_SERVICE_NAME", "em-of-mine")
            assert telemetry.start()
            with Memory("em.db") as memory:
                memory.observe("ana", MARKER)
            telemetry.stop()
            wait_until(lambda: {"/v1/traces", "/v1/metrics"} <= set(paths))
        finally:
            telemetry.stop()
            server.shutdown()
            thread.join()
    sent = b"".join(bodies)
    assert b"em-of-mine" in sent
    assert b"em.commit" in sent
    assert MARKER.encode() not in sent
