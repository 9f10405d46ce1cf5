"""Every entrance to a memory: each function plants a marker about a subject through one of them."""

import asyncio
import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
from tests.serve.mcp_agents import agent, over_stdio

from em import Engine, Memory
from em.heuristics.heuristic import Lesson
from em.heuristics.loop import Loop, LoopStarted
from em.llm import ScriptedClient
from em.serve.app import make_app
from em.settings import Settings
from em.traces.trace import Mission, ToolCall, Trace

FLOW = """
workflows:
  given_{who}:
    params: [text]
    steps:
      - {{name: one, inputs: {{prompt: "{{{{params.text}}}}"}}}}
      - {{name: two, memory: {{needs: [one]}}, inputs: {{prompt: "{{{{memory.one_output}}}}"}}}}
  recalls_{who}:
    steps:
      - name: look
        memory: {{needs: ["recall(lives, 1, {who})"]}}
        inputs: {{prompt: "{{{{memory.recall}}}}"}}
      - name: two
        memory: {{needs: [last_output]}}
        inputs: {{prompt: "{{{{memory.last_output}}}}"}}
  knows_{who}:
    steps:
      - name: look
        memory: {{needs: ["state({who}, trips)"]}}
        inputs: {{prompt: "{{{{memory.state}}}}"}}
  reads_{who}:
    steps:
      - name: use
        memory: {{needs: ["run(recalls_{who}, two)"]}}
        inputs: {{prompt: "{{{{memory.recalls_{who}_two_output}}}}"}}
  inside_{who}:
    steps:
      - name: look
        memory: {{needs: ["recall(lives, 1, {who})"]}}
        inputs: {{prompt: "{{{{memory.recall}}}}"}}
      - name: inner
        tool: run_routine
        memory: {{needs: [look]}}
        inputs:
          routine: close_{who}
          input: {{name: "{{{{memory.look_output.strip('[].')}}}}"}}
      - name: after
        memory: {{needs: [inner]}}
        inputs: {{prompt: "{{{{memory.inner_output}}}}"}}
"""


class Garden:
    """A memory to plant in, and what the entrances need."""

    def __init__(self, memory: Memory, folder: Path, stem: str, who: str, db: str) -> None:
        self.memory, self.folder, self.stem, self.who, self.db = memory, folder, stem, who, db
        self.markers: set[str] = set()
        self.model = ScriptedClient(lambda request: f"[{request.prompt}]")
        self.flow = folder / f"flow_{who}.yaml"
        self.flow.write_text(FLOW.format(who=who))

    def marker(self, name: str) -> str:
        self.markers.add(f"{self.stem}{name}")
        return f"{self.stem}{name}"

    def trace(self, name: str, goal: str) -> Trace:
        said = self.marker(name)
        found = {"id": f"U-{said}", "name": said}
        calls = [
            ToolCall(tool="find_user", args={"name": said}, result=found),
            ToolCall(
                tool="close_account",
                args={"user_id": found["id"]},
                result={"closed": found["id"]},
            ),
        ]
        mission = Mission(f"{goal} {self.who}", {"name": said})
        return Trace(mission=mission, events=calls, outcome="success", final_output=found["id"])

    def tools(self) -> dict[str, Any]:
        return {
            "find_user": lambda name: {"id": f"U-{name}", "name": name},
            "close_account": lambda user_id: {"closed": user_id},
        }

    def workflow(self, name: str, params: Mapping[str, Any] | None = None, **options: Any) -> Any:
        workflows = self.memory.workflows(self.flow, self.tools(), client=self.model)
        result = workflows.start(f"{name}_{self.who}", params, **options)
        assert result.status == "ok", result
        return result


def observations(garden: Garden) -> None:
    memory, who, marker = garden.memory, garden.who, garden.marker
    memory.observe(who, f"She lives at {marker('observed')}.", speaker=marker("speaker"))
    memory.observe(who, "hello", session=marker("session"), source=marker("source"))
    memory.observe(who, {"to": marker("record"), "cost": 12}, type="Trip")
    memory.observe_many([{"subject": who, "text": marker("many")}])
    lines = [
        {
            "stream": f"notes/{who}",
            "kind": "message",
            "subject": who,
            "body": {"role": "user", "text": marker("line")},
        },
        {
            "stream": f"app/{who}",
            "kind": "my.kind",
            "subject": who,
            "body": {"x": marker("ownkind")},
        },
    ]
    text = "\n".join(map(json.dumps, lines)).encode()
    memory.log.import_file(io.BytesIO(text), "lines.jsonl")
    memory.embed()


def state(garden: Garden) -> None:
    memory, who, marker = garden.memory, garden.who, garden.marker
    memory.observe(who, {"city": marker("faro")}, type="Profile")
    memory.observe(who, {"city": marker("porto")}, type="Profile")
    memory.checkpoint(who)
    memory.resolve(who, "Profile.city", value=marker("decided"))
    memory.checkpoint(who)
    assert marker("record") in str(memory.state(who).code) + str([*memory.store.records(who)])


def traces(garden: Garden) -> None:
    memory, who, marker = garden.memory, garden.who, garden.marker
    added = memory.add_trace(garden.trace("added", "Look after"), subject=who)
    memory.label(added, "success", reason=marker("labelled"))
    with memory.record(f"Do {marker('recorded')}", subject=who) as recorder:
        tool = recorder.tool(lambda text: f"done {text}", name="do")
        tool(text=marker("called"))
    path = garden.folder / f"{who}.json"
    path.write_text(
        json.dumps(
            {
                "task": f"say {marker('imported')}",
                "outcome": "success",
                "steps": [{"action": "say", "args": {"x": marker("step")}, "observation": "ok"}],
            }
        )
    )
    memory.import_files(path, subject=who)


def lessons(garden: Garden) -> None:
    memory, who, marker = garden.memory, garden.who, garden.marker
    failed = {
        "task": f"load {marker('lesson')}",
        "outcome": "success",
        "steps": [
            {"action": "insert", "args": {"total": "1,5"}, "error": f"no total {marker('bad')}"},
            {"action": "insert", "args": {"total": "1.5"}, "observation": "ok"},
        ],
    }
    learned = memory.reflect([memory.add_trace(failed, subject=who)])
    assert learned
    memory.feedback(learned[0].id, "success", task=marker("fedback"), subject=who)
    started = LoopStarted(f"reach {marker('goal')}", f"echo {marker('agent')}", "", 1)
    Loop(memory.store, memory.heuristics, started, subject=who).run()


def routines(garden: Garden) -> None:
    memory, who, marker = garden.memory, garden.who, garden.marker
    trace = memory.add_trace(garden.trace("compiled", "Close the account of"), subject=who)
    routine = memory.compile(trace, name=f"close_{who}")
    # A run without a subject is made of its routine, which is made of the trace.
    assert memory.run(routine, {"name": "x"}, garden.tools()).status == "ok"
    given = {"name": marker("input")}
    done = memory.run(routine, given, garden.tools(), subject=who)
    assert marker("input") in str(done.output)
    with memory.record(f"Close {marker('shadow')}", given, shadow=[routine.ref], subject=who) as it:
        for name, function in garden.tools().items():
            tool = it.tool(function, name=name)
            tool(**({"name": marker("seen")} if name == "find_user" else {"user_id": "U-1"}))
    memory.shadow_report()


def workflows(garden: Garden) -> None:
    who, marker = garden.who, garden.marker
    garden.workflow("given", {"text": marker("param")}, prompt=marker("prompt"), subject=who)
    assert garden.stem in garden.workflow("recalls").output
    assert garden.stem in garden.workflow("reads").output
    assert garden.stem in garden.workflow("inside").output
    assert garden.stem in garden.workflow("knows").output


def behaviours(garden: Garden) -> None:
    engine = Engine(garden.memory.store, name=f"engine-{garden.who}", subject=garden.who)
    fails = [False]

    @engine.function()
    def look(text: str) -> str:
        if fails[0]:
            raise ValueError(f"no {text}")
        return f"saw {text}"

    @engine.function()
    def tell(text: str) -> str:
        return f"told {text}"

    @engine.set_agent
    def agent(text: str) -> str:
        return tell(look(text)) if not fails[0] else tell(text)

    said = garden.marker("behaviour")
    assert not engine(said).hit
    assert engine(said).hit
    fails[0] = True
    engine(said)


def jobs(garden: Garden) -> None:
    from em.work.queue import Queue
    from em.work.worker import Worker

    memory, who, marker = garden.memory, garden.who, garden.marker
    with Queue(memory) as queue:
        queue.add_runs(f"close_{who}", [{"name": marker("job")}], subject=who)
        own = next(one.id for one in memory.traces() if one.subject == who)
        queue.add_compilations({marker("task"): [own]})
    Worker(memory, tools=garden.tools()).run(drain=True)


def service(garden: Garden) -> None:
    asyncio.run(_service(garden))


async def _service(garden: Garden) -> None:
    who, marker = garden.who, garden.marker
    app = make_app(garden.memory, Settings.load())
    transport = httpx.ASGITransport(app=app)  # type: ignore[arg-type]  # an ASGI application
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:

        async def post(path: str, body: Any, **headers: str) -> Any:
            given = {"Idempotency-Key": f"{path} {who}", **headers}
            answer = await client.post(path, json=body, headers=given)
            assert answer.status_code in (200, 201), answer.text
            return answer.json()

        await post("/observations", {"subject": who, "text": marker("posted")})
        steps = [{"action": "say", "args": {"x": marker("sent")}, "observation": marker("got")}]
        trajectory = {"task": marker("posttask"), "outcome": "success", "steps": steps}
        await post("/trajectories", {**trajectory, "subject": who})
        await post("/reflect", {"trajectory": {**trajectory, "subject": who}})
        lesson = {"trigger": marker("trigger"), "action": marker("action"), "subject": who}
        await post("/heuristics", lesson)
        common = {"trigger": "a door is locked", "action": "look for the key"}
        known = await post("/heuristics", common, **{"Idempotency-Key": f"common {who}"})
        used = {"outcome": "success", "task": marker("useful"), "subject": who}
        await post(f"/heuristics/{known['id']}/feedback", used)
        await post("/ask", {"subject": who, "question": "where does she live?"})
        await post("/checkpoint", {"subject": who})
        await post("/v1/traces", _spans(who, marker("span")), **{"X-Em-Subject": who})


GREET = """\
name: greet
input_schema: {type: object, properties: {who: {type: string}}}
steps: [{id: out, type: return, value: "Hello {{ who }}"}]
"""


def agents(garden: Garden) -> None:
    from em.runner.package import keep_routine

    memory, who, marker = garden.memory, garden.who, garden.marker
    keep_routine(memory.store, {"routine.yaml": GREET})
    (known,) = memory.heuristics.keep([Lesson(trigger="a window is open", action="close it")])

    async def work(client: Any) -> None:
        about = {"em/subject": who}
        ran = await client.call_tool("greet", {"who": marker("greeted")}, meta=about)
        assert marker("greeted") in str(ran.structured_content)
        task = {"task": marker("attempt"), "outcome": "success", "subject": who}
        told = await client.call_tool("lesson", {**task, "lessons": [known.id]})
        assert told.structured_content["judged"] == [known.id]
        await client.call_tool("remember", {"subject": who, "text": marker("observed")})

    agent(over_stdio(db=garden.db), work)


def _spans(who: str, text: str) -> Any:
    pairs = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look_up",
        "gen_ai.tool.call.arguments": json.dumps({"x": text}),
    }
    span = {
        "traceId": who.encode().hex().ljust(32, "0"),
        "spanId": "00f067aa0ba902b7",
        "name": "x",
        "startTimeUnixNano": str(10**18),
        "endTimeUnixNano": str(10**18 + 10**6),
        "attributes": [{"key": k, "value": {"stringValue": v}} for k, v in pairs.items()],
    }
    return {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}


ENTRANCES: tuple[Callable[[Garden], None], ...] = (
    observations,
    state,
    traces,
    lessons,
    routines,
    workflows,
    behaviours,
    jobs,
    service,
    agents,
)
