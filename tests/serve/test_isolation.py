"""One subject never sees another's data: every path, page and MCP tool, by being there.

Ana's things have a mark. Everything the service offers is asked for with Bo's token, with Ana's
name and ids wherever a name or an id fits. The mark must not come back, and nothing of Ana's may
change. A new path, page or tool is covered without another line here.
"""

import inspect
import json
import re
from collections.abc import Container, Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp_agents import ASKING, agent, keep, over_http
from served import Serve, Served, log_in, token_in

from em import Memory
from em.serve.pages import HANDLERS as PAGES
from em.traces.trace import read_trace, trace_events
from mcp import Client

ALL, ANA, BO = "all-0123456789abcdefghij", "ana-0123456789abcdefghij", "bo-0123456789abcdefghij"
MARK = "quokkamark"
SETTINGS = """\
api:
  tokens:
    - {env: ANA_TOKEN, subjects: [ana]}
    - {env: BO_TOKEN, subjects: [bo]}
workflows:
  notes:
    params: [what]
    steps:
      - {name: say, tool: recall, inputs: {query: "{{ params.what }}"}}
"""
SPAN = "5b8efff798038103d269b633813fc60c"


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def otlp(name: str) -> dict[str, Any]:
    """An export with one call of a tool, in the trace that has Ana's id."""
    given = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
    span = {
        "traceId": SPAN,
        "spanId": "eee19b7ec3c1b174",
        "name": name,
        "startTimeUnixNano": "1544712660000000000",
        "endTimeUnixNano": "1544712661000000000",
        "attributes": [{"key": k, "value": {"stringValue": v}} for k, v in given.items()],
    }
    return {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}


def plant(service: Served) -> None:
    """Put the mark into whatever can be about Ana."""

    def post(path: str, body: Any, **headers: str) -> Any:
        sent = service.http.post(path, json=body, headers={**bearer(ALL), **headers})
        assert sent.status_code < 300, (path, sent.text)
        return sent.json()

    about = {"subject": "ana"}
    post("/observations", {**about, "text": f"I keep the {MARK} in the garden."})
    post("/observations", {**about, "record": {"name": MARK, "city": "Porto"}, "type": "Home"})
    post("/checkpoint", about)
    steps = [{"action": "find", "args": {"what": MARK}, "error": f"no {MARK}"}]
    steps += [{"action": "find", "args": {"what": f"{MARK}s"}, "observation": MARK}]
    attempt = {"task": f"find the {MARK}", "outcome": "success", "steps": steps, **about}
    post("/trajectories", attempt)
    post("/reflect", {"trajectory": attempt})
    post("/heuristics", {"trigger": f"a {MARK} is lost", "action": f"call the {MARK}", **about})
    post("/v1/traces", otlp(MARK), **{"X-Em-Subject": "ana"})
    everybodys = post("/heuristics", {"trigger": "a door is locked", "action": "look for the key"})
    used = {**about, "outcome": "success", "task": f"unlock the {MARK}"}
    post(f"/heuristics/{everybodys['id']}/feedback", used)
    post("/jobs", {"kind": "checkpoint", "subjects": ["ana"]})
    flow = post("/workflow-runs", {"workflow": "notes", "params": {"what": MARK}, **about})
    assert (flow["status"], MARK in str(flow["output"])) == ("ok", True)
    run = post("/runs", {"routine": "greet", "input": {"who": MARK}, **about})
    assert run["status"] == "needs_input", "so it could be answered or cancelled"
    post("/ask", {**about, "question": f"Where is the {MARK}?"}, **{"Idempotency-Key": "same"})


def log_of(service: Served, subject: str) -> list[Any]:
    found = service.http.get("/log", params={"subject": subject, "limit": 200}, headers=bearer(ALL))
    events: list[Any] = found.json()["items"]
    return events


def ids_in(events: list[Any]) -> list[str]:
    """Every id that stands in the events of a subject: of events, streams, lessons, records."""

    def walk(value: Any, key: str = "") -> Iterator[str]:
        if isinstance(value, dict):
            for name, inner in value.items():
                yield from walk(inner, name)
        elif isinstance(value, list):
            for inner in value:
                yield from walk(inner, key)
        elif isinstance(value, str) and (key == "id" or key.endswith(("_id", "_ids"))):
            yield value
        elif isinstance(value, str) and key == "stream":
            yield value.partition("/")[2]

    return sorted(set(walk(events)))


class Filled:
    """Values for a schema: a subject's name and ids wherever one fits."""

    def __init__(self, description: dict[str, Any], subject: str, an_id: str) -> None:
        self._schemas = description.get("components", {}).get("schemas", {})
        self._schemas = {**self._schemas, **description.get("$defs", {})}
        self._subject, self._id = subject, an_id

    def value(self, schema: dict[str, Any], name: str = "") -> Any:
        """Return a value that fits a schema."""
        if "$ref" in schema:
            return self.value(self._schemas[schema["$ref"].rpartition("/")[2]], name)
        for several in ("oneOf", "anyOf", "allOf"):
            if several in schema:
                kinds = [one for one in schema[several] if one.get("type") != "null"]
                return self.value(kinds[0], name)
        if "enum" in schema:
            return schema["enum"][0]
        return self._of_kind(schema, name)

    def _of_kind(self, schema: dict[str, Any], name: str) -> Any:
        kind = schema.get("type")
        if kind == "object":
            found = {k: self.value(v, k) for k, v in schema.get("properties", {}).items()}
            return found or ({"what": self._id} if name else {})
        if kind == "array":
            return [self.value(schema.get("items", {"type": "string"}), name)]
        if kind in ("integer", "number"):
            return schema.get("minimum", 1)
        return False if kind == "boolean" else self.text(name)

    def text(self, name: str) -> str:
        """Return a text for a field of this name."""
        if name == "subject":
            return self._subject
        if name in ("since", "until", "at", "as_of"):
            return "2020-01-01" if name != "until" else "2099-01-01"
        if name in (
            "q",
            "query",
            "task",
            "question",
            "text",
            "goal",
            "trigger",
            "action",
            "reason",
        ):
            return MARK[:-4] + " garden"
        return self._id


@pytest.fixture
def service(serve: Serve) -> Served:
    Path("em.yaml").write_text(SETTINGS)
    keep(ASKING)
    served = serve(env={"EM_API_TOKEN": ALL, "ANA_TOKEN": ANA, "BO_TOKEN": BO})
    plant(served)
    return served


def asked(
    service: Served, token: str, ids: list[str], only: set[str] | None = None
) -> Iterator[tuple[str, httpx.Response]]:
    """Send requests for every operation (of `only` these paths) with Ana's ids, with a token.

    Each has all its parameters, and once more only those that must be there.
    """
    described = service.http.get("/docs/openapi.json", headers=bearer(ALL)).json()
    for path, operations in described["paths"].items():
        if path == "/evaluate" or (only and path not in only):  # a store of its own, and slow
            continue
        for method, operation in operations.items():
            has_id = "{" in path or "_id" in json.dumps(operation)
            wanted = product(("ana", "bo", None), ids if has_id else ids[:1], (False, True))
            for subject, an_id, bare in wanted:
                where = (path, method)
                yield path, _send(service, token, described, where, subject, an_id, bare)


def _send(
    service: Served,
    token: str,
    described: dict[str, Any],
    where: tuple[str, str],
    subject: str | None,
    an_id: str,
    bare: bool,
) -> httpx.Response:
    path, method = where
    operation = described["paths"][path][method]
    fill = Filled(described, subject or "", an_id)
    headers = {**bearer(token), **({"X-Em-Subject": subject} if subject else {})}
    if method == "post":
        headers["Idempotency-Key"] = "same"
    query = {}
    for one in operation.get("parameters", []):
        if one["in"] == "path":
            path = path.replace("{" + one["name"] + "}", an_id)
        elif one["in"] == "query" and one["name"] == "subject":
            query |= {"subject": subject} if subject else {}
        elif one["in"] == "query" and (one.get("required") or not bare):
            query[one["name"]] = fill.value(one.get("schema", {}), one["name"])
    body = operation.get("requestBody", {}).get("content", {}).get("application/json")
    given = otlp("other") if body is None else fill.value(body["schema"])
    if isinstance(given, dict) and subject is None:
        given.pop("subject", None)
    return service.http.request(
        method, path, params=query, json=given if method == "post" else None, headers=headers
    )


def test_no_path_shows_or_changes_another_subjects_data(service: Served) -> None:
    before = log_of(service, "ana")
    ids = ids_in(before)
    assert len(ids) > 5
    tried = set()
    for path, answer in asked(service, BO, ids):
        tried.add(path)
        assert answer.status_code < 500, (path, answer.text)
        assert MARK not in answer.text, (path, answer.request.url, answer.text)
    assert log_of(service, "ana") == before
    assert len(tried) > 25
    # The requests would find Ana's data: with her own token they do.
    some = {"/log", "/recall", "/trajectories/{trajectory_id}", "/heuristics"}
    assert some == {path for path, got in asked(service, ANA, ids, some) if MARK in got.text}


@cache
def parameters(handler: Any) -> list[str]:
    """The parameters that the pages of a handler's module read."""
    source = inspect.getsource(inspect.getmodule(handler))
    return re.findall(r'(?:parameter\(request, |view\.get\(|view\.time\()"(\w+)"\)', source)


ACTS = {
    "/ui/state/{act:str}": ("checkpoint", "rule", "accept", "resolve", "correct", "retract"),
    "/ui/routine/{done:str}": ("strike", "accept", "withdraw", "retire", "restore"),
}
"""What a form names in its path."""


def every_page() -> Iterator[tuple[str, str, Any]]:
    """The path of each page and form, its method, and its handler."""
    for handler in PAGES:
        path, (method,) = sorted(handler.paths)[0], handler.http_methods
        for act in ACTS.get(path, ("",)):
            yield path.rpartition("{")[0] + act if act else path, method, handler


def test_no_page_shows_or_changes_another_subjects_data(service: Served) -> None:
    before = log_of(service, "ana")
    ids = ids_in(before)

    def pages(token: str, only: set[str] | None = None) -> Iterator[tuple[str, str]]:
        with log_in(service, token) as browser:
            key = {"form_token": token_in(browser.get("/ui/log?subject=bo").text)}
            for (path, method, handler), an_id, bare in product(every_page(), ids, (False, True)):
                if "login" in path or "logout" in path or "static" in path:
                    continue
                if only and path not in only:
                    continue
                names = {"id", "subject", *([] if bare else parameters(handler.fn))}
                given = {name: Filled({}, "ana", an_id).text(name) for name in sorted(names)}
                if method == "GET":
                    answer = browser.get(path, params=given)
                else:
                    answer = browser.post(path, params=given, data={**given, **key})
                assert answer.status_code < 500, (path, answer.text)
                yield path, answer.text

    for path, text in pages(BO):
        assert MARK not in text, path
    assert log_of(service, "ana") == before
    some = {"/ui/log", "/ui/recall", "/ui/state"}
    assert some == {path for path, text in pages(ANA, some) if MARK in text}


def test_no_mcp_tool_shows_or_changes_another_subjects_data(service: Served) -> None:
    before = log_of(service, "ana")
    ids = ids_in(before)

    async def everything(client: Client, only: Container[str] = ()) -> dict[str, str]:
        said: dict[str, str] = {}
        tools = [one for one in (await client.list_tools()).tools if not only or one.name in only]
        for tool in sorted(tools, key=lambda one: not one.annotations.read_only_hint):
            plain = {"subject", "only", "context"}
            ways = (plain, {*plain, "code", "action"}, None)  # what is left out
            for subject, an_id, less in product(("ana", None), ids, ways):
                schema = tool.input_schema
                filled = Filled(schema, subject or "", an_id).value({**schema, "type": "object"})
                wanted = schema.get("required", []) if less is None else {*filled} - less
                given = {name: filled[name] for name in wanted if name != "subject"}
                given |= {"subject": subject} if subject and "subject" in filled else {}
                result = await client.call_tool(tool.name, given)
                told = str(result.structured_content) + str(result.content)
                said[tool.name] = said.get(tool.name, "") + told
        return said

    for name, text in agent(over_http(service.url, BO), everything).items():
        assert MARK not in text, name
    assert log_of(service, "ana") == before
    some = {"ask"}
    own = agent(over_http(service.url, ANA), lambda client: everything(client, some))
    assert some <= {name for name, text in own.items() if MARK in text}


def test_a_span_with_anothers_trace_id_is_no_way_in(service: Served) -> None:
    sent = service.http.post("/v1/traces", json=otlp("bos_tool"), headers=bearer(BO))
    assert sent.status_code == 200
    seen = service.http.get("/trajectories", headers=bearer(BO)).json()["items"]
    for one in seen:
        assert MARK not in service.http.get(f"/trajectories/{one['id']}", headers=bearer(BO)).text
    with Memory("em.db") as memory:
        mine = [event for event in memory.log.read() if event.subject == "ana"]
    assert "bos_tool" not in str(mine)


def test_the_beginning_of_an_id_is_looked_up_among_ones_own_traces(service: Served) -> None:
    with Memory("em.db") as memory:
        for trace_id in ("begins-ana-one", "begins-ana-two", "begins-bo"):
            about = trace_id.split("-")[1]
            trace = read_trace(b'{"task": "count", "steps": []}', "trace")
            memory.log.append_many(trace_events(trace, trace_id, subject=about))

    def check(given: str, found: bool, text: str) -> None:
        assert found == (given == "begins"), text
        assert {*re.findall(r"begins[\w-]*", text)} <= {given, "begins-bo"}, text

    def ask(client: httpx.Client, method: str, path: str, **sent: Any) -> None:
        for given in ("begins", "begins-ana", "begins-ana-o"):
            filled = json.loads(json.dumps(sent).replace("ID", given))
            answer = client.request(method, path.replace("ID", given), **filled)
            check(given, answer.status_code < 400, answer.text + str(answer.headers))

    with httpx.Client(base_url=service.url, headers=bearer(BO), timeout=60) as http:
        ask(http, "GET", "/trajectories/ID")
        ask(http, "POST", "/trajectories/ID/label", json={"outcome": "success"})
        ask(http, "POST", "/reflect", json={"trajectory_id": "ID"})
    with log_in(service, BO) as browser:
        key = {"form_token": token_in(browser.get("/ui/log?subject=bo").text)}
        ask(browser, "GET", "/ui/trace?id=ID")
        ask(browser, "GET", "/ui/trace/rows?id=ID")
        ask(browser, "POST", "/ui/trace/lesson", data={"id": "ID", **key})
    every = service.http.get("/trajectories/begins", headers=bearer(ALL))
    assert (every.status_code, "3 traces" in every.text) == (400, True)


def one_of_each(events: list[Any]) -> list[str]:
    """An event of a subject, and one thing of each kind: a trace, a lesson, a job, a run…"""
    streams = dict(one["stream"].partition("/")[::2] for one in events)
    found = [events[0]["id"], *streams.values()]
    assert {"trace", "heuristic", "job", "run"} <= streams.keys()
    return [one for one in found if one != "ana"]


def wanted(hidden: list[str]) -> Iterator[tuple[str, str]]:
    """Each id and the beginning of each, with one as long that nothing has."""
    for given in (*hidden, *(one[:-2] for one in hidden)):
        yield given, "f" * len(given)


IDS = {
    "id",
    "ref",
    "event",
    "events",
    "from_events",
    "traces",
    "runs",
    "run",
    "heuristics",
    "lessons",
}


def is_id(name: str) -> bool:
    return name in IDS or name.endswith(("_id", "_ids"))


class Operation:
    """A request that OpenAPI describes, with what it must have and an id wherever one fits."""

    def __init__(self, described: dict[str, Any], method: str, path: str) -> None:
        self.method, self.path = method, path
        self._described, operation = described, described["paths"][path][method]
        self._parameters = operation.get("parameters", [])
        body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
        name = body.get("schema", {}).get("$ref", "").rpartition("/")[2]
        self._body = described["components"]["schemas"].get(name, {})

    @property
    def takes_id(self) -> bool:
        named = [one["name"] for one in self._parameters if one["in"] == "query"]
        return "{" in self.path or any(map(is_id, (*named, *self._body.get("properties", {}))))

    def ask(self, service: Served, token: str, given: str) -> httpx.Response:
        fill, needed = Filled(self._described, "bo", given), self._body.get("required", [])
        query = {
            one["name"]: fill.value(one["schema"], one["name"])
            for one in self._parameters
            if one["in"] == "query" and (one.get("required") or _is_given(one["name"]))
        }
        body = {
            name: fill.value(schema, name)
            for name, schema in self._body.get("properties", {}).items()
            if name in needed or _is_given(name)
        }
        path, sent = re.sub(r"{\w+}", given, self.path), body if self._body else None
        return service.http.request(
            self.method, path, params=query, json=sent, headers=bearer(token)
        )


def _is_given(name: str) -> bool:
    return name == "subject" or is_id(name)


DECISIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("/state/accept", {"event_id": "ID"}),
    ("/state/retract", {"event_id": "ID"}),
    ("/state/retract", {"field": "ID"}),
    ("/state/correct", {"event_id": "ID", "changes": {"city": "Lagos"}}),
    ("/resolve", {"field": "profile.city", "event": "ID"}),
)
"""What a person may decide about a state, with an id where one fits."""


def give_state(service: Served, subject: str) -> None:
    """Compile a state with a fact and a record: without one, nothing else is looked up."""
    about = {"subject": subject}
    for path, body in (
        ("/observations", {"record": {"city": "Lagos"}, "type": "Profile"}),
        ("/observations", {"record": {"city": "Lagos"}, "type": "Home"}),
        ("/checkpoint", {}),
    ):
        sent = service.http.post(path, json={**about, **body}, headers=bearer(ALL))
        assert sent.status_code < 300, (path, sent.text)


def test_over_http_what_is_hidden_answers_as_what_is_absent(service: Served) -> None:
    give_state(service, "bo")
    described = service.http.get("/docs/openapi.json", headers=bearer(ALL)).json()
    pairs = list(wanted(one_of_each(log_of(service, "ana"))))
    every = [
        Operation(described, method, path)
        for path, operations in described["paths"].items()
        for method in operations
    ]
    told, own = set(), set()
    for operation, (hidden, absent) in product(every, pairs):
        if not operation.takes_id:
            continue
        one, other = (operation.ask(service, BO, given) for given in (hidden, absent))
        assert one.status_code == other.status_code, (operation.path, one.text, other.text)
        if one.is_error or operation.method == "get":
            assert one.text.replace(hidden, absent) == other.text, operation.path
        told |= {operation.path} if one.status_code == 404 else set()
        if operation.method == "get" and operation.ask(service, ANA, hidden).is_success:
            own.add(operation.path)
    for (path, body), (hidden, absent) in product(DECISIONS, pairs):
        one, other = (
            service.http.post(
                path,
                json={"subject": "bo", **json.loads(json.dumps(body).replace("ID", given))},
                headers=bearer(BO),
            )
            for given in (hidden, absent)
        )
        assert (one.status_code, other.status_code) == (404, 404), (path, one.text, other.text)
        assert one.text.replace(hidden, absent) == other.text, path
    by_id = {"/trajectories/{trajectory_id}", "/heuristics/{heuristic_id}", "/jobs/{job_id}"}
    assert by_id | {"/reflect", "/jobs/{job_id}/cancel"} <= told
    assert by_id <= own, "the ids are right"


def test_on_pages_what_is_hidden_answers_as_what_is_absent(service: Served) -> None:
    pairs = list(wanted(one_of_each(log_of(service, "ana"))))
    told = set()
    with log_in(service, BO) as browser:
        key = {"form_token": token_in(browser.get("/ui/log?subject=bo").text)}

        def ask(method: str, path: str, given: str) -> httpx.Response:
            asked = {"id": given, "ref": given, "subject": "bo"}
            if method == "GET":
                return browser.get(path, params=asked)
            return browser.post(path, params=asked, data={**asked, **key})

        for (path, method, handler), (hidden, absent) in product(every_page(), pairs):
            if {"id", "ref"}.isdisjoint(parameters(handler.fn)) or path == "/ui/live":
                continue  # that one goes on for ever, and takes no id
            one, other = ask(method, path, hidden), ask(method, path, absent)
            assert one.status_code == other.status_code, (path, one.text, other.text)
            assert one.text.replace(hidden, absent) == other.text, path
            told |= {path} if one.status_code == 404 else set()
    assert told == {
        "/ui/event", "/ui/lesson", "/ui/lesson/accept", "/ui/lesson/retire", "/ui/trace",
        "/ui/trace/event", "/ui/trace/lesson", "/ui/trace/rows",
    }  # fmt: skip


def test_over_mcp_what_is_hidden_answers_as_what_is_absent(service: Served) -> None:
    pairs = list(wanted(one_of_each(log_of(service, "ana"))))

    async def compare(client: Client) -> set[str]:
        told = set()
        for tool in (await client.list_tools()).tools:
            schema = tool.input_schema
            for name, (hidden, absent) in product(filter(is_id, schema["properties"]), pairs):
                said = []
                for given in (hidden, absent):
                    filled = Filled(schema, "bo", given).value({**schema, "type": "object"})
                    needed = {*schema.get("required", ()), "subject", "task", "outcome", name}
                    sent = needed & filled.keys()
                    result = await client.call_tool(tool.name, {key: filled[key] for key in sent})
                    said.append(str(result).replace(given, absent) if result.is_error else "")
                assert said[0] == said[1], tool.name
                told |= {tool.name} if said[0] else set()
        return told

    told = agent(over_http(service.url, BO), compare)
    assert "lesson" in told
