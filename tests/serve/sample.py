"""A memory with something on every page; `word` stands in each text that a page may show."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from em import Check, Memory
from em.heuristics.heuristic import Lesson
from em.llm import ScriptedClient
from em.log.event import Draft
from em.runner.package import keep_routine, opened

HOSTILE = (
    "<script>document.title='owned'</script>\"'><img src=x onerror=\"document.title='owned'\">"
    "<svg onload=\"document.title='owned'\"></svg>"
    "<a href=\"javascript:document.title='owned'\">x</a>"
    "{{ 7*7 }}</textarea></title></pre>"
)


def refund(word: str = "", *, limit: int = 500) -> str:
    """A routine that a page can run: it asks a person, and needs no tool."""
    routine = {
        "version": "1",
        "name": "refund",
        "description": f"Pay an order back, once a person has agreed {word}".strip(),
        "input_schema": {
            "type": "object",
            "properties": {
                "order": {"type": "string", "description": f"The number of the order {word}"},
                "amount": {"type": "number"},
                "reason": {"type": "string", "enum": ["broken", "late"]},
                "details": {"type": "object"},
            },
            "required": ["order", "amount", "reason"],
        },
        "steps": [
            {
                "id": "in_range",
                "type": "assert",
                "check": f"0 < amount <= {limit}",
                "message": f"not an amount that can be paid back {word}",
            },
            {
                "id": "agree",
                "type": "prompt.user",
                "save_as": "said",
                "prompt": {
                    "message": "Pay {{ amount }} back for order {{ order }}?",
                    "fields": [
                        {"name": "ok", "type": "confirm", "label": f"Agreed {word}".strip()},
                        {"name": "note", "type": "text", "required": False},
                    ],
                },
            },
            {
                "id": "done",
                "type": "return",
                "value": {"order": "{{ order }}", "amount": "{{ amount }}", "ok": "{{ said.ok }}"},
            },
        ],
    }
    return msgspec.yaml.encode(routine).decode()


def keep_refund(memory: Memory, word: str = "", *, limit: int = 500) -> str:
    example = {"order": f"A-17 {word}".strip(), "amount": 40, "reason": "late"}
    files = {
        "routine.yaml": refund(word, limit=limit),
        "input.json": msgspec.json.encode(example).decode(),
        "recording.json": msgspec.json.encode(
            {
                "usage": {
                    "tokens": 8200,
                    "cost_usd": 0.041,
                    "duration_ms": 21_000,
                    "calls": 9,
                    "model_calls": 6,
                }
            }
        ).decode(),
    }
    return keep_routine(memory.store, files).ref


def trace(word: str = "") -> dict[str, Any]:
    """An agent that got there in the end."""
    address = f"http://shop.example/orders/A-17{word}"
    return {
        "version": "1",
        "app": {"name": f"shop-agent {word}".strip()},
        "mission": {"goal": f"Pay A-17 back {word}".strip(), "input_summary": {"url": address}},
        "events": [
            {"type": "message", "role": "user", "text": f"Please pay order A-17 back. {word}"},
            {"type": "tool_call", "tool": "get_order", "args": {"url": "http://shop.example/A-17"},
             "error": f"404: no such page {word}", "duration_ms": 120.0},
            {"type": "tool_call", "tool": "get_order", "args": {"url": address},
             "result": {"order_id": "A-17-778812", "total": 40.25, "note": f"late {word}"},
             "duration_ms": 310.0},
            {"type": "tool_call", "tool": "list_coupons", "args": {"customer": "c-99182"},
             "result": [], "duration_ms": 90.0},
            {"type": "tool_call", "tool": "create_refund",
             "args": {"order_id": "A-17-778812", "amount": 40.25}, "effect": "write",
             "result": {"refund": "r-5512", "text": f"paid {word}"}, "duration_ms": 640.0},
        ],
        "final_output": {"refund": "r-5512"},
        "outcome": "success",
        "usage": {"tokens": 9_100, "cost_usd": 0.052, "duration_ms": 24_000, "model_calls": 5},
    }  # fmt: skip


def hash_of(memory: Memory, ref: str) -> str:
    with opened(memory.store, ref) as package:
        return package.content_hash


def runs(memory: Memory, ref: str, days: int = 30, word: str = "") -> None:
    """Runs of the past, told as the journal tells them."""
    today = datetime.now(UTC).replace(hour=1, minute=0, second=0, microsecond=0)
    drafts: list[Draft] = []
    known = hash_of(memory, ref)
    for back in range(days - 1, -1, -1):
        for number in range(1 + (back * 7) % 5):
            at = today - timedelta(days=back, seconds=-60 * number)
            failed = (back * 3 + number) % 11 == 5
            mended = number == 2 or bool(word)
            drafts += run_events(
                f"past-{back}-{number}", ref, at, known, failed=failed, mended=mended, word=word
            )
    memory.log.append_many(drafts)


def run_events(
    run_id: str,
    ref: str,
    at: datetime,
    routine_hash: str = "",
    *,
    failed: bool = False,
    mended: bool = False,
    word: str = "",
) -> list[Draft]:
    stream = f"run/{run_id}"
    started = {
        "routine": "refund",
        "hash": routine_hash,
        "stored": ref,
        "input": {"order": f"A-17 {word}"},
    }
    failure = {
        "step_id": "in_range",
        "error_type": "AssertionError",
        "message": f"not an amount that can be paid back {word}",
        "context": {},
    }
    asked = {"step": "agree", "result": {"ok": True}, "duration_ms": 260.0}
    if mended:
        asked |= {"attempts": 2, "error": f"it was busy {word}", "fix": {"action": "modify_args"}}
    steps = [("step_done", {"step": "in_range", "result": True, "duration_ms": 12.5})]
    steps.append(("step_done", asked))
    ended: dict[str, Any] = {"status": "ok", "output": {"text": word or "paid"}}
    if failed:
        steps, ended = [], {"status": "failed", "failure": failure}
    events = [("run_started", started), *steps, ("run_ended", ended)]
    return [
        Draft(stream=stream, kind=kind, body=body, at=at + timedelta(milliseconds=400 * n))
        for n, (kind, body) in enumerate(events)
    ]


def behaviours(memory: Memory, word: str = "") -> None:
    """Hits, a miss and a hand-over of one engine."""
    shop = {"price": f"1900 {word}".strip()}
    engine = memory.engine("shop")

    @engine.function()
    def create_order(item: str) -> dict[str, Any]:
        return {"id": f"order-{len(item)}", "item": item}

    @engine.function(pre_check=Check(lambda: shop["price"], lambda now, then: now == then))
    def pay(order_id: str, customer: str) -> str:
        return f"{customer} paid for {order_id}"

    def agent(item: str, customer: str, progress: Any) -> str:
        order = progress.done[0].result if progress else create_order(item)
        return str(pay(order["id"], customer))

    engine.set_agent(agent).finalize()
    item = f"lamp {word}".strip()
    for customer in ("Ana", "Bo", "Cy"):
        engine(item, customer, params=["customer"])
    shop["price"] = f"2100 {word}".strip()
    engine(item, "Di", params=["customer"])


def shadowed(memory: Memory, ref: str, word: str = "") -> None:
    """Comparisons of a routine with agents, over some days."""
    now = datetime.now(UTC)
    call = {"tool": "create_refund", "args": {"order": f"A-17 {word}".strip()}}
    rows: list[tuple[int, dict[str, Any]]] = [
        (3, {"verdict": "differed", "would_do": [call], "did": [], "reason": f"one more {word}"}),
        (2, {"verdict": "handed_over", "reason": f"it would have asked: {word}"}),
        (1, {"verdict": "agreed"}),
        (1, {"verdict": "agreed"}),
        (0, {"verdict": "agreed"}),
    ]
    memory.log.append_many(
        [
            Draft(
                stream=f"shadow/{ref.partition('@')[0]}",
                kind="shadow_compared",
                body={"routine": ref, **body},
                at=now - timedelta(days=back),
            )
            for back, body in rows
        ]
    )


def about(memory: Memory, subject: str = "ana", word: str = "") -> None:
    """What is known of somebody, with a contradiction and a rule."""
    for month, city in enumerate(["Lisbon", "Porto", f"Madrid {word}".strip()], 2):
        at = f"2025-0{month}-03"
        trip = {"destination": city, "date": at, "cost_usd": 300.5 + month}
        memory.observe(subject, trip, type="Trip", at=at)
    memory.observe(subject, {"city": "Faro"}, type="Profile", at="2025-01-01", source="form")
    moved = {"city": f"Porto {word}".strip(), "diet": "vegetarian"}
    memory.observe(subject, moved, type="Profile", at="2025-04-07", source="ana")
    memory.observe(
        subject, f"I like window seats. {word}".strip(), at="2025-04-08", speaker=subject
    )
    memory.checkpoint(subject)


def lessons(memory: Memory, word: str = "", subject: str | None = None) -> None:
    memory.heuristics.keep(
        [
            Lesson(
                trigger=f"a refund fails with 409 {word}".strip(),
                action=f"read the order again before paying back {word}".strip(),
                analysis=f"the total may have changed {word}".strip(),
                subject=subject,
            )
        ]
    )


def workflow(memory: Memory, word: str = "") -> str:
    """A run of a workflow; its id."""
    Path("flow.yaml").write_text(
        "workflows:\n  tell:\n    params: [topic]\n    steps:\n"
        "      - {name: facts, inputs: {prompt: 'Facts about {{ params.topic }}'}}\n"
        "      - {name: text, memory: {needs: [facts]}, "
        "inputs: {prompt: 'Write: {{ memory.facts }}'}}\n"
    )
    client = ScriptedClient(lambda request: f"{word} {request.prompt}")
    return memory.workflow("tell", {"topic": f"tea {word}"}, file="flow.yaml", client=client).run_id


def fill(memory: Memory, word: str = "") -> dict[str, str]:
    """Everything; the ids that pages are asked for."""
    trace_id = memory.add_trace(trace(word))
    memory.compile(trace_id, name="pay_back")
    ref = keep_refund(memory, word, limit=100)
    ref = keep_refund(memory, word)
    runs(memory, ref, word=word)
    shadowed(memory, ref, word)
    given = {"order": f"A-18 {word}".strip(), "amount": 12.5, "reason": "late"}
    waiting = memory.run("refund", given)
    assert waiting.status == "needs_input", waiting
    failed = memory.run("refund", {**given, "amount": -1})
    assert failed.status == "failed"
    behaviours(memory, word)
    about(memory, word=word)
    lessons(memory, word)
    flow = workflow(memory, word)
    lesson = next(iter(memory.heuristics.every())).id
    event = next(iter(memory.log.read(subject="ana", limit=1)))
    return {
        "/ui": "",
        "/ui/runs": "",
        "/ui/run": f"id={waiting.run_id}",
        "/ui/run#failed": f"id={failed.run_id}",
        "/ui/run#ok": "id=past-1-0",
        "/ui/traces": "",
        "/ui/trace": f"id={trace_id}",
        "/ui/routines": "",
        "/ui/routine": f"ref={ref}",
        "/ui/workflows": "",
        "/ui/run#workflow": f"id={flow}",
        "/ui/state": "",
        "/ui/state#one": "subject=ana&ask=where+does+ana+live",
        "/ui/recall": "q=window+seats",
        "/ui/lessons": "",
        "/ui/lessons#fit": "task=a+refund+fails",
        "/ui/lesson": f"id={lesson}",
        "/ui/log": "",
        "/ui/event": f"id={event.id}",
        "/ui/verify": "",
        "/ui/search": "q=A-17",
    }


def addresses(filled: dict[str, str]) -> dict[str, str]:
    """The addresses of all pages, by their names."""
    return {
        name: name.partition("#")[0] + (f"?{query}" if query else "")
        for name, query in filled.items()
    }
