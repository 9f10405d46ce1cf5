"""Everything that em has a page for, made with em's own calls. The same every time but for ids.

Times are counted back from now, since the overview shows the last weeks.
"""

import contextlib
import os
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bench.filled import desk, people
from bench.series import chores, claude
from bench.series.projects import Task, bumps, write
from em import Check, Memory
from em.heuristics.heuristic import Lesson
from em.llm import ScriptedClient
from em.traces.trace import Message, Mission, ToolCall, Trace
from em.work.queue import Queue
from em.work.worker import Worker

RESEARCH = Path(__file__).parents[2] / "examples" / "research" / "em.yaml"
VISIT = """\
workflows:
  plan_visit:
    description: Plan a visit of a customer, once somebody has said when.
    params: [customer]
    steps:
      - {name: facts, inputs: {prompt: "What is known about {{ params.customer }}?"}}
      - name: when
        tool: ask
        inputs:
          message: "When shall we visit {{ params.customer }}?"
          fields: [{name: day, type: text, label: Day}, {name: note, type: text, required: false}]
      - name: letter
        memory: {needs: [facts, when]}
        inputs: {prompt: "Write to {{ params.customer }}: {{ memory.when }}. {{ memory.facts }}"}
"""

SAYS = (
    "Three sources agree on the main points and differ in the dates. The oldest was written by an"
    " eyewitness, the other two repeat it in part. What is missing in all of them is who paid for"
    " it, and how long it took; the archive of the town may know. A short list of books follows."
)
"""What the scripted model answers with."""


class Size(NamedTuple):
    """How much of everything."""

    runs: int
    traces: int
    learnt: int
    calls: int
    subjects: int
    records: int
    workflows: int


FULL = Size(runs=1_000, traces=40, learnt=8, calls=10_000, subjects=10, records=400, workflows=8)
SMALL = Size(runs=30, traces=6, learnt=0, calls=300, subjects=2, records=20, workflows=2)


def data_folder() -> Path | None:
    """Return the folder that EM_BENCH_DATA names, if it has transcripts."""
    named = os.environ.get("EM_BENCH_DATA", "")
    return Path(named) if named and Path(named, "transcripts").is_dir() else None


def fill(path: Path, size: Size = FULL, data: Path | None = None) -> None:
    """Fill a new database. data: a folder with transcripts, used instead of our own sessions."""
    with Memory(path) as memory:
        if data is None:
            _own_sessions(memory)
        else:
            memory.import_files([data / "transcripts", data / "tau_retail"])
        memory.add_trace(long_trace(size.calls))
        desk.fill(memory, size.traces, size.learnt, size.runs)
        _behaviours(memory)
        _lessons(memory)
        people.fill(memory, size.subjects, size.records)
        _workflows(memory, size.workflows)
        _jobs(memory)


def _own_sessions(memory: Memory) -> None:
    """Import sessions of the scripted coding agents of the series."""
    with tempfile.TemporaryDirectory() as folder:
        for number, text in enumerate(_sessions()):
            Path(folder, f"session-{number}.jsonl").write_text(text)
        memory.import_files(folder)


def _sessions() -> Iterator[str]:
    for seed, task in enumerate(bumps()):
        yield _session(task, claude.Agent, claude.bump, seed)
    for seed, task in enumerate(chores.chores()):
        yield _session(task, chores.Agent, chores.release, seed)


def _session(task: Task, agent_class: Any, work: Any, seed: int) -> str:
    with tempfile.TemporaryDirectory() as folder:
        write(task.files, Path(folder))
        agent = agent_class(task, Path(folder))
        work(agent, task, seed)
        text: str = agent.text()
    return text


def long_trace(calls: int) -> Trace:
    """An agent that went through an archive, one file after the other."""
    draw = random.Random(21)
    events: list[Any] = []
    for number in range(calls):
        if number % 40 == 0:
            events.append(Message(role="user", text=f"Go on with box {number // 40 + 1}."))
        name = f"box-{number // 40 + 1:03}/letter-{number % 40:02}.txt"
        took = round(draw.uniform(4, 260), 1)
        if number % 3 == 0:
            text = f"Dear archive, this is letter {number} of {calls:,}."
            events.append(ToolCall(tool="read_letter", args={"file": name}, result=text,
                                   duration_ms=took, effect="read"))  # fmt: skip
        elif number % 97 == 4:
            events.append(ToolCall(tool="catalogue", args={"file": name, "year": 1900},
                                   error="the year is not legible", duration_ms=took))  # fmt: skip
        else:
            entry = {"file": name, "year": 1900 + number % 80, "keywords": ["letter", "family"]}
            events.append(ToolCall(tool="catalogue", args=entry, result={"entry": number},
                                   duration_ms=took, effect="write"))  # fmt: skip
    goal = "Catalogue the letters of the family archive"
    return Trace(
        mission=Mission(goal=goal), events=events, outcome="success", app={"name": "archivist"}
    )


def _behaviours(memory: Memory) -> None:
    """Orders in a shop: some replayed, some handed over since the price has changed."""
    prices = {"lamp": 1900, "rug": 5500, "chair": 7900, "clock": 2600}
    engine = memory.engine("shop")

    @engine.function()
    def create_order(item: str) -> dict[str, Any]:
        return {"id": f"order-{item}", "item": item}

    @engine.function(pre_check=Check(lambda: dict(prices), lambda now, then: now == then))
    def pay(order_id: str, customer: str) -> str:
        return f"{customer} paid for {order_id}"

    def agent(item: str, customer: str, progress: Any) -> str:
        time.sleep(0.1)  # what a replay saves
        order = progress.done[0].result if progress else create_order(item)
        return str(pay(order["id"], customer))

    engine.set_agent(agent).finalize()
    for item in prices:
        for customer in ("Ana", "Bo", "Cy", "Di"):
            engine(item, customer, params=["customer"])
    prices["lamp"] = 2100
    for item, customer in (("lamp", "Ed"), ("rug", "Flo"), ("lamp", "Gus")):
        engine(item, customer, params=["customer"])


LESSONS = [
    ("a refund fails with 409", "read the order again before paying back",
     "the total may have changed in between", "failure"),
    ("a customer names no order", "look the orders up by the e-mail address first",
     "most customers have one open order", "success"),
    ("an order is shipped already", "offer a return instead of cancelling",
     "a shipped order can't be cancelled", "failure"),
    ("the changelog has no section for the version", "write one above the newest",
     "readers look at the top", "success"),
    ("a CSV has no header", "ask for the names of its columns", "columns were mixed up", "failure"),
    ("the shop answers slowly", "ask for fifty orders at a time", "larger pages time out",
     "success"),
]  # fmt: skip


def _lessons(memory: Memory) -> None:
    kept = memory.heuristics.keep(
        [
            Lesson(trigger=when, action=do, analysis=why, polarity=polarity)  # type: ignore[arg-type]
            for when, do, why, polarity in LESSONS
        ]
    )
    for number, lesson in enumerate(kept):
        for again in range(number):
            memory.feedback(
                lesson.id, "failure" if again % 3 == 2 else "success", task=LESSONS[0][0]
            )


def _workflows(memory: Memory, count: int) -> None:
    """Runs that are over, one that failed, and some that wait at a gate or ask."""
    with _folder_with(VISIT) as visit:
        client = ScriptedClient(lambda request: f"{request.prompt.splitlines()[0][:60]} {SAYS}")
        research = memory.workflows(RESEARCH, {"count_words": _count_words}, client=client)
        topics = [
            "honey bees",
            "tides",
            "lighthouses",
            "old maps",
            "glass",
            "salt",
            "canals",
            "ink",
        ]
        for number, topic in enumerate(topics[:count]):
            waits = research.start("research_and_analyze", {"topic": topic})
            if number % 3 == 1:
                research.resume(waits.run_id, answers={"report": {"approve": True}})
        broken = memory.workflows(RESEARCH, {"count_words": _no_words}, client=client)
        broken.start("research_and_analyze", {"topic": "fog"})
        visits = memory.workflows(visit, client=client)
        for number, customer in enumerate(("Ana Lima", "Bo Berg", "Cy Cole")[: max(1, count // 2)]):
            waits = visits.start("plan_visit", {"customer": customer})
            if number == 1:
                visits.resume(waits.run_id, answers={"when": {"day": "Monday"}})


def _jobs(memory: Memory) -> None:
    """Queued work: some done, some failed, one cancelled, some that waits for a worker."""
    unlabelled = Trace(mission=Mission(goal="sort the post"), events=[], outcome="unknown")
    with Queue(memory) as queue:
        queue.add_checkpoints(chunk=5)
        queue.add_reflections(chunk=20)
        queue.add_compilations({"sort the post": [memory.add_trace(unlabelled)]})
        Worker(memory).run(drain=True)
        queue.cancel(queue.add_reflections(chunk=1_000)[0], by="ops")
        queue.add_checkpoints(chunk=5)


def _count_words(texts: list[str]) -> int:
    return sum(len(text.split()) for text in texts)


def _no_words(texts: list[str]) -> int:
    raise ValueError(f"expected texts in English, got {len(texts)} in another language")


@contextlib.contextmanager
def _folder_with(text: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "em.yaml")
        path.write_text(text)
        yield path
