"""Parts: everything that reads what others wrote. Each makes damaged inputs, and takes one."""

import contextlib
import io
import json
import os
import re
import shutil
import sqlite3
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

from bench.fuzz import samples
from bench.fuzz.mutation import Mutation, written
from em import Memory
from em.errors import EmError

RENEWED = 100
"""Inputs that one store takes before there is a new one."""


class Part:
    """Something that reads inputs. `take` raises what a user would see as a traceback."""

    name: ClassVar[str]

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def make(self, mutation: Mutation) -> bytes:
        """Return a damaged input."""
        raise NotImplementedError

    def take(self, data: bytes) -> None:
        """Read an input; an EmError is an answer, any other exception is a failure."""
        raise NotImplementedError

    def renew(self) -> None:
        """Forget what earlier inputs left."""

    def close(self) -> None:
        """Let go of everything."""


class Transcripts(Part):
    """`em import`, and what is done with the traces then: listed, shown, compared, compiled."""

    name = "transcripts"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._taken = 0
        self._memory = Memory(":memory:")

    def make(self, mutation: Mutation) -> bytes:
        if mutation.draw.random() < 0.05:
            return _database(mutation)
        sample = mutation.draw.choice(samples.transcripts())
        kind = mutation.draw.random()
        others = [mutation.draw.choice(samples.transcripts()).values] if kind < 0.2 else []
        if sample.is_document:
            data = written(mutation.value(sample.values[0], others))
        else:
            rows = mutation.value(sample.values, others)
            data = b"\n".join(map(written, rows if isinstance(rows, list) else [rows]))
        return mutation.data(data) if kind > 0.8 else data

    def take(self, data: bytes) -> None:
        if self._taken == RENEWED:
            self.renew()
        self._taken += 1
        path = self.folder / f"{self._taken % 3}.jsonl"  # some files are read again, changed
        path.write_bytes(data)
        (read,) = self._memory.import_files(path)
        use_traces(self._memory, read.traces)

    def renew(self) -> None:
        self._memory.close()
        self._memory, self._taken = Memory(":memory:"), 0

    def close(self) -> None:
        self._memory.close()


def _database(mutation: Mutation) -> bytes:
    """Return a damaged database of opencode."""
    named = [one for one in samples.transcripts() if one.name == "opencode" and one.is_document]
    session = mutation.draw.choice(named).values[0]
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        database.execute("CREATE TABLE session (id, parent_id, directory, time_created)")
        database.execute("CREATE TABLE message (id, session_id, time_created, data)")
        database.execute("CREATE TABLE part (id, message_id, session_id, data)")
        database.execute("INSERT INTO session VALUES ('s1', NULL, '/x', 1)")
        for number, message in enumerate(session["messages"]):
            info = written(mutation.value(message["info"]))
            row = (f"m{number}", number, mutation.data(info) if number % 4 == 3 else info.decode())
            database.execute("INSERT INTO message VALUES (?, 's1', ?, ?)", row)
            for place, part in enumerate(message["parts"]):
                row = (f"p{number}-{place}", f"m{number}", written(mutation.value(part)).decode())
                database.execute("INSERT INTO part VALUES (?, ?, 's1', ?)", row)
        database.commit()
        data = database.serialize()
    return mutation.data(data) if mutation.draw.random() < 0.4 else data


def use_traces(memory: Memory, ids: Any) -> None:
    """Do with traces what commands do: list, show, compare and compile them."""
    from em.cli.traces import print_timeline
    from em.traces.catalogue import children_of, diff_traces, get_traces, list_traces

    list_traces(memory.store, limit=5)
    for trace_id in ids[:3]:
        (kept,) = get_traces(memory.store, [trace_id])
        diff_traces(kept.trace, kept.trace)
        children_of(memory.store, kept.id)
        with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO(), encoding="utf-8")):
            print_timeline(kept)
        with contextlib.suppress(EmError):
            memory.compile(trace_id, allow_failed=True)
        with contextlib.suppress(EmError):
            memory.reflect(trace_id)


class Otlp(Part):
    """`POST /v1/traces` behind the door: exports as JSON and as protobuf."""

    name = "otlp"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._service = _Service(folder)

    def make(self, mutation: Mutation) -> bytes:
        named = [one for one in samples.transcripts() if one.name in ("otel", "otel_genai")]
        sample = mutation.draw.choice(named).values[0]
        kind = mutation.draw.random()
        others = [mutation.draw.choice(samples.transcripts()).values] if kind < 0.2 else []
        if kind < 0.7:
            body, content = written(mutation.value(sample, others)), b"application/json"
        else:
            body, content = mutation.data(_protobuf()), b"application/x-protobuf"
        return content + b"\n" + (mutation.data(body) if 0.6 < kind < 0.7 else body)

    def take(self, data: bytes) -> None:
        content, _, body = data.partition(b"\n")
        self._service.ask("POST", b"/v1/traces", [(b"content-type", content)], body)

    def renew(self) -> None:
        self._service.renew()

    def close(self) -> None:
        self._service.close()


def _protobuf() -> bytes:
    from google.protobuf.json_format import ParseDict
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    return bytes(ParseDict(_export(), ExportTraceServiceRequest()).SerializeToString())


def _export() -> dict[str, Any]:
    given = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look",
        "gen_ai.tool.call.arguments": '{"a": 1}',
        "gen_ai.tool.call.result": "[2]",
    }
    pairs = [{"key": key, "value": {"stringValue": value}} for key, value in given.items()]
    span = {
        "traceId": "Cvdlkq", "spanId": "7uGbfsPBsXQ=", "name": "x",
        "startTimeUnixNano": "1544712660000000000", "endTimeUnixNano": "1544712661000000000",
        "attributes": pairs,
    }  # fmt: skip
    return {"resourceSpans": [{"scopeSpans": [{"spans": [span, span]}]}]}


class Routines(Part):
    """`em routine validate`, `em run` with and without a dry run, and what agents are shown."""

    name = "routines"

    def make(self, mutation: Mutation) -> bytes:
        import yaml

        number = mutation.draw.randrange(len(samples.packages()))
        text = samples.packages()[number].files["routine.yaml"]
        kind = mutation.draw.random()
        if kind < 0.6:
            value = mutation.value(yaml.safe_load(text))
            text = written(value).decode() if kind < 0.3 else _yaml(value)
        elif kind < 0.85:
            text = mutation.lines(text)
        data = text.encode("utf-8", "surrogatepass")
        return b"%d\n" % number + (mutation.data(data) if kind > 0.85 else data)

    def take(self, data: bytes) -> None:
        from em.runner.engine import run_routine
        from em.runner.preparation import prepare_routine
        from em.runner.validation import validate

        number, _, text = data.partition(b"\n")
        package = samples.packages()[int(number) % len(samples.packages())]
        folder = self.folder / "routine"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name, content in package.files.items():
            (folder / name).write_text(content)
        (folder / "routine.yaml").write_bytes(text)
        validate(folder)
        for go in (prepare_routine, run_routine):
            with contextlib.suppress(EmError):
                go(folder, dict(package.input), package.tools())
        self._show(folder)

    def _show(self, folder: Path) -> None:
        from em.runner.card import CardBox, public_form
        from em.runner.package import files_in, keep_routine, opened

        with Memory(":memory:") as memory:
            kept = keep_routine(memory.store, files_in(folder), [])
            CardBox(memory.store).newest()
            public_form(kept)
            with opened(memory.store, kept.name):
                pass


def _yaml(value: Any) -> str:
    import yaml

    with contextlib.suppress(RecursionError, yaml.YAMLError):
        return str(yaml.safe_dump(value, sort_keys=False, allow_unicode=True))
    return "name: x"


def _mutated(text: str, mutation: Mutation) -> bytes:
    """Return a YAML file with another value, with other lines or with other bytes."""
    import yaml

    kind = mutation.draw.random()
    if kind < 0.6:
        text = _yaml(mutation.value(yaml.safe_load(text)))
    elif kind < 0.85:
        text = mutation.lines(text)
    data = text.encode("utf-8", "surrogatepass")
    return mutation.data(data) if kind > 0.85 else data


class Workflows(Part):
    """`em workflow validate`, `graph`, `run` and `inspect`."""

    name = "workflows"

    def make(self, mutation: Mutation) -> bytes:
        return _mutated(samples.WORKFLOW, mutation)

    def take(self, data: bytes) -> None:
        from em.llm import ScriptedClient
        from em.workflows import Workflows as Flows
        from em.workflows.inspection import as_mermaid, as_text

        path = self.folder / "flow.yaml"
        path.write_bytes(data)
        tools = {"count_words": lambda texts: len(str(texts)), "send": lambda text, to: str(to)}
        client = ScriptedClient(lambda _request: "an answer")
        with Memory(":memory:") as memory:
            flows = Flows(memory.store, file=path, tools=tools, client=client)
            flows.validate()
            for flow in flows.names():
                with contextlib.suppress(EmError):
                    as_text(flows.plan(flow.name)), as_mermaid(flows.plan(flow.name))
                with contextlib.suppress(EmError):
                    flows.dry_run(flow.name, {"topic": "bees"})
                with contextlib.suppress(EmError):
                    run = flows.start_this(flow, {"topic": "bees"})
                    flows.inspect(run.run_id)


class Expressions(Part):
    """Templates and expressions of routines and workflows, and what validation says of them."""

    name = "expressions"
    scope: ClassVar[dict[str, Any]] = {
        "text": "ab12", "n": 3, "day": "2026-02-28", "none": None, "yes": True, "x": 2.5,
        "rows": [{"name": "a", "n": 1, "deep": {"x": 1}}, {"name": "b", "n": None, "deep": []}],
        "order": {"items": [{"price": 9.5}], "status": "open"},
    }  # fmt: skip

    def make(self, mutation: Mutation) -> bytes:
        from em.runner.expressions.functions import FUNCTIONS
        from em.runner.expressions.jinja import _FILTERS

        words = [*FUNCTIONS, *(f"|{name}" for name in _FILTERS), *self.scope, "(", ")", "[", "]",
                 "{{", "}}", "{%", "%}", "|", "**", "//", "==", "~", ".", "'", "9" * 50, "1e300",
                 "if ", "else ", "for ", "in ", "is ", "not ", "lambda",
                 "__class__", ":", ","]  # fmt: skip
        text = mutation.draw.choice(samples.EXPRESSIONS)
        if mutation.draw.random() < 0.2:
            text += mutation.draw.choice(samples.EXPRESSIONS)
        return mutation.text(text, words).encode("utf-8", "surrogatepass")

    def take(self, data: bytes) -> None:
        from em.runner.expressions.language import compile_expression, compile_value, names_in

        text = data.decode("utf-8", "surrogatepass")
        for bare in (True, False):
            with contextlib.suppress(EmError):
                names_in(text, "here", bare=bare)
        for make in (compile_expression, compile_value):
            with contextlib.suppress(EmError):
                make(text, "here")(self.scope)


class SettingsFiles(Part):
    """The em.yaml of a folder, with everything that reads it."""

    name = "em.yaml"

    def make(self, mutation: Mutation) -> bytes:
        return _mutated(samples.SETTINGS, mutation)

    def take(self, data: bytes) -> None:
        from em.settings import Settings, named_settings
        from em.store import redactor_of

        (self.folder / "em.yaml").write_bytes(data)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            settings = Settings.load(self.folder, {})
            redactor_of(settings).text("password=x")
            named_settings(self.folder)
            with contextlib.suppress(EmError):
                Memory(":memory:", settings=settings).close()


class LogLines(Part):
    """`em log import`: lines that another em exported."""

    name = "log"

    def make(self, mutation: Mutation) -> bytes:
        rows = [json.loads(line) for line in _exported().splitlines()]
        data = b"\n".join(map(written, mutation.value(rows)))
        return mutation.data(data) if mutation.draw.random() < 0.3 else data

    def take(self, data: bytes) -> None:
        for rechain in (False, True):
            with Memory(":memory:") as memory, contextlib.suppress(EmError):
                memory.log.import_file(io.BytesIO(data), "input", rechain=rechain)
                memory.log.verify()


_KEPT: dict[str, bytes] = {}


def _exported() -> bytes:
    if not _KEPT:
        with Memory(":memory:") as memory:
            memory.observe("ana", "likes tea")
            memory.observe("ana", {"name": "Ana", "city": "Porto"}, type="Person")
            memory.add_trace({"mission": {"goal": "look"}, "events": [], "outcome": "success"})
            _KEPT["log"] = b"".join(memory.log.export())
    return _KEPT["log"]


class Hooks(Part):
    """What coding agents tell the hook service: answered, and recorded."""

    name = "hooks"

    def make(self, mutation: Mutation) -> bytes:
        names = (
            "SessionStart",
            "UserPromptSubmit",
            "PreToolUse",
            "PostToolUse",
            "Stop",
            "SessionEnd",
        )
        tool = {
            "tool_name": "Bash",
            "tool_input": {"command": "ls -la"},
            "tool_response": {"stdout": "x"},
        }
        event = {
            "session_id": "s1",
            "cwd": "/",
            "transcript_path": "session.jsonl",
            "prompt": "do it",
            "hook_event_name": mutation.draw.choice(names),
            "source": "startup",
            **tool,
        }
        session = mutation.draw.choice(
            [one for one in samples.transcripts() if not one.is_document]
        )
        rows = mutation.value(session.values) if mutation.draw.random() < 0.5 else session.values
        return written([mutation.value(event), rows])

    def take(self, data: bytes) -> None:
        from em.clients.hook_service import HookService

        event, rows = json.loads(data)
        (self.folder / "session.jsonl").write_bytes(
            b"\n".join(map(written, rows if isinstance(rows, list) else [rows]))
        )
        if not isinstance(event, dict):
            return
        with Memory(":memory:") as memory:
            service = HookService(memory, self.folder / "hooks" / "socket")
            # What the service expects of a connection and of a file: it goes on.
            with contextlib.suppress(OSError, ValueError):
                service.answer(event)
            with contextlib.suppress(EmError, OSError, ValueError):
                service.record(event)
                service.record({**event, "hook_event_name": "SessionEnd"})


class Requests(Part):
    """Every path of the service, its pages and MCP included: method, address, headers, body."""

    name = "http"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._service = _Service(folder)
        self._known = list(self._service.known())

    def make(self, mutation: Mutation) -> bytes:
        one = mutation.draw.choice(self._known)
        if mutation.draw.random() < 0.7 and one.get("body") not in (None, ""):
            one = {**one, "body": mutation.value(one["body"])}
        else:
            one = mutation.value(one)
        return written(one)

    def take(self, data: bytes) -> None:
        one = json.loads(data)
        if not isinstance(one, dict):
            return
        body = one.get("body", "")
        raw = body.encode("utf-8", "replace") if isinstance(body, str) else written(body)
        headers = [(b"content-type", b"application/json")] if raw else []
        given = one.get("headers")
        for name, value in given.items() if isinstance(given, dict) else ():
            headers.append((_latin(name).lower(), _latin(value)))
        target = _latin(one.get("target", "/")).replace(b" ", b"+") or b"/"
        method = re.sub(r"[^A-Z]", "", str(one.get("method", "GET")).upper())[:20]
        self._service.ask(method or "GET", target, headers, raw)

    def renew(self) -> None:
        self._service.renew()

    def close(self) -> None:
        self._service.close()


def _latin(value: Any) -> bytes:
    """Return a text as a header can have it."""
    made = str(value).encode("latin-1", "replace")
    return bytes(byte for byte in made if byte not in b"\r\n\0")[:4000]


class _Service:
    """The service in this process, without sockets."""

    def __init__(self, folder: Path) -> None:
        from bench.fuzz.service import InProcess

        self._make: Callable[[], Any] = lambda: InProcess(folder)
        self._served, self._asked = self._make(), 0

    def ask(
        self, method: str, target: bytes, headers: list[tuple[bytes, bytes]], body: bytes
    ) -> None:
        if self._asked == RENEWED * 5:
            self.renew()
        self._asked += 1
        self._served.ask(method, target, headers, body)

    def known(self) -> Iterator[dict[str, Any]]:
        yield from self._served.known()

    def renew(self) -> None:
        self._served.close()
        self._served, self._asked = self._make(), 0

    def close(self) -> None:
        self._served.close()


PARTS: dict[str, type[Part]] = {
    part.name: part
    for part in (
        Transcripts,
        Otlp,
        Requests,
        Routines,
        Workflows,
        Expressions,
        SettingsFiles,
        LogLines,
        Hooks,
    )
}


@contextlib.contextmanager
def folder_of_its_own() -> Iterator[Path]:
    """Work in a new folder, in memory where there is one: inputs are written to files."""
    shm = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=shm) as name, contextlib.chdir(name):
        yield Path(name)
