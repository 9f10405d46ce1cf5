"""A help desk: an agent's traces, the routines learnt from them, and a thousand runs of these.

A few runs are real. The others are their journals again, for other customers and at other times.
"""

import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from em import Memory, recorded_tool
from em.log.event import Draft, run_stream
from em.runner.package import keep_routine
from em.runner.run import RunResult
from em.traces.trace import Message, Mission, ToolCall, Trace, trace_events
from em.values.call import Usage

DAYS = 28
EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = "Ana Bo Cy Di Ed Flo Gus Hal Iva Jon Kit Leo Mia Ned Ola Pia Sue Tom Uma Vic Zoe".split()
WAYS = ("express", "courier", "mail")


class Order(NamedTuple):
    """An order of a customer."""

    name: str
    number: str
    status: str = "open"

    @property
    def email(self) -> str:
        return f"{self.name.lower()}@mail.example"

    @property
    def customer(self) -> str:
        return f"C-{self.number[2:]}"

    def request(self, shipping: str = "") -> str:
        """What the customer writes."""
        if shipping:
            wish = f"change the shipping of order {self.number} to {shipping}"
        else:
            wish = f"cancel order {self.number}"
        return f"I am {self.email}. Please {wish}."


def order(number: int, status: str = "open") -> Order:
    """Return the order of a number."""
    return Order(NAMES[number % len(NAMES)], f"W-{7300 + number}", status)


def fill(memory: Memory, traces: int, learnt: int, runs: int) -> None:
    """Record, compile and run."""
    now = datetime.now(UTC)
    kept = [_record(memory, number, now) for number in range(traces)]
    _record_failures(memory, now)
    samples = [_refunds(memory)]
    if learnt:
        _learn(memory, kept[:learnt])
        samples.append(_answered(memory))
        _learn(memory, kept[: learnt + 4])
        _compare(memory, now)
    folder = EXAMPLES / "csv_report" / "routine"
    files = {one.name: one.read_text() for one in folder.iterdir() if one.is_file()}
    keep_routine(memory.store, files)
    shown = [one for sample in samples for one in sample]
    memory.log.append_many([*_many(shown, runs, now)])


def _learn(memory: Memory, traces: Sequence[str]) -> None:
    """Compile each of the two kinds of task."""
    memory.compile(traces[::2], name="cancel_order")
    memory.compile(traces[1::2], name="change_shipping")


def _trace(one: Order, shipping: str, draw: random.Random) -> Trace:
    def call(tool: str, args: dict[str, Any], result: Any, effect: Any) -> ToolCall:
        took = round(draw.uniform(60, 900), 1)
        return ToolCall(tool=tool, args=args, result=result, effect=effect, duration_ms=took)

    number = one.number
    row = {"id": number, "customer": one.customer, "status": one.status, "shipping": "mail"}
    if shipping:
        done = {"order_id": number, "shipping": shipping}
        act = call("change_shipping", {"order_id": number, "shipping": shipping}, done, "write")
    else:
        done = {"order_id": number, "status": "cancelled"}
        act = call("cancel_order", {"order_id": number}, done, "write")
    person = {"id": one.customer, "email": one.email, "name": one.name, "orders": [number]}
    request = one.request(shipping)
    events = [
        Message(role="user", text=request),
        call("find_customer", {"email": one.email}, person, "read"),
        call("get_order", {"order_id": number}, {**row, "order_id": number}, "read"),
        act,
    ]
    return Trace(
        app={"name": "help-desk"},
        mission=Mission(goal=request, input_summary={"request": request}),
        events=events,
        final_output="done",
        outcome="success",
        usage=Usage(tokens=4_600, cost_usd=0.0208, duration_ms=9_400, model_calls=4),
    )


def _record(memory: Memory, number: int, now: datetime) -> str:
    draw = random.Random(number)
    trace = _trace(order(number), WAYS[number % 3] if number % 2 else "", draw)
    return _append(
        memory, trace, f"desk-{number:03}", now - timedelta(hours=15 * number, minutes=9)
    )


def _append(memory: Memory, trace: Trace, trace_id: str, at: datetime) -> str:
    drafts = trace_events(trace, trace_id)
    memory.log.append_many([msgspec.structs.replace(one, at=at) for one in drafts])
    return trace_id


def _record_failures(memory: Memory, now: datetime) -> None:
    for number in range(3):
        made = _trace(order(900 + number, "shipped"), "", random.Random(number))
        refused = msgspec.structs.replace(
            made.calls[-1], result=None, error="the order is shipped already"
        )
        trace = msgspec.structs.replace(
            made, events=[*made.events[:-1], refused], outcome="failure", final_output=None
        )
        _append(memory, trace, f"desk-failed-{number}", now - timedelta(days=number, hours=3))


class Sample(NamedTuple):
    """The journal of a real run: what was done, when since its start, and for whom."""

    events: list[tuple[str, Any, timedelta]]
    order: Order
    share: int


def _sample(memory: Memory, result: RunResult, one: Order, share: int) -> Sample:
    events = list(memory.log.read(stream=run_stream(result.run_id)))
    began = events[0].at
    return Sample([(event.kind, event.body, event.at - began) for event in events], one, share)


BOOKS = {one.number: one for one in [*(order(n) for n in range(900)), order(905, "shipped")]}


@recorded_tool(effect="read")
def find_customer(email: str) -> dict[str, Any]:
    """Find a customer, with the numbers of the orders."""
    found = next(one for one in reversed(BOOKS.values()) if one.email == email)
    return {"id": found.customer, "email": email, "name": found.name, "orders": [found.number]}


@recorded_tool(effect="read")
def get_order(order_id: str) -> dict[str, Any]:
    """Look an order up."""
    one = BOOKS[order_id]
    row = {"id": order_id, "customer": one.customer, "status": one.status, "shipping": "mail"}
    return {**row, "order_id": order_id}


@recorded_tool(effect="write")
def cancel_order(order_id: str) -> dict[str, Any]:
    """Cancel an order."""
    return {"order_id": order_id, "status": "cancelled"}


@recorded_tool(effect="write")
def change_shipping(order_id: str, shipping: str) -> dict[str, Any]:
    """Send an order in another way."""
    return {"order_id": order_id, "shipping": shipping}


TOOLS = {
    "find_customer": find_customer,
    "get_order": get_order,
    "cancel_order": cancel_order,
    "change_shipping": change_shipping,
}


def _answered(memory: Memory) -> list[Sample]:
    """Runs of what was learnt: two that are done, and one that is handed over."""
    latest = {one.email: one for one in BOOKS.values()}
    open_, moved = latest["mia@mail.example"], latest["ned@mail.example"]
    shipped = order(905, "shipped")
    made = []
    for one, shipping, share in ((open_, "", 20), (moved, "courier", 18), (shipped, "", 1)):
        given = {"request": one.request(shipping)}
        name = "change_shipping" if shipping else "cancel_order"
        made.append(_sample(memory, memory.run(name, given, TOOLS), one, share))
    return made


def refund(limit: int) -> dict[str, str]:
    """A routine that a person wrote: it checks the amount, and asks before it pays back."""
    routine = {
        "version": "1",
        "name": "refund",
        "description": "Pay an order back, once a person has agreed",
        "input_schema": {
            "type": "object",
            "properties": {
                "order": {"type": "string", "description": "The number of the order"},
                "amount": {"type": "number"},
                "reason": {"type": "string", "enum": ["broken", "late"]},
            },
            "required": ["order", "amount", "reason"],
        },
        "steps": [
            {"id": "in_range", "type": "assert", "check": f"0 < amount <= {limit}",
             "message": f"an amount between 0 and {limit} can be paid back"},
            {"id": "agree", "type": "prompt.user", "save_as": "said",
             "prompt": {"message": "Pay {{ amount }} back for order {{ order }}?",
                        "fields": [{"name": "ok", "type": "confirm", "label": "Agreed"},
                                   {"name": "note", "type": "text", "required": False}]}},
            {"id": "done", "type": "return",
             "value": {"order": "{{ order }}", "amount": "{{ amount }}", "ok": "{{ said.ok }}"}},
        ],
    }  # fmt: skip
    usage = {"tokens": 8200, "cost_usd": 0.041, "duration_ms": 21_000, "calls": 9, "model_calls": 6}
    example = {"order": "W-7311", "amount": 40, "reason": "late"}
    return {
        "routine.yaml": msgspec.yaml.encode(routine).decode(),
        "input.json": msgspec.json.encode(example).decode(),
        "recording.json": msgspec.json.encode({"usage": usage}).decode(),
    }


def _refunds(memory: Memory) -> list[Sample]:
    """Runs of a routine in its third version: one that waits, one that is done, one that failed."""
    for limit in (100, 250, 500):
        keep_routine(memory.store, refund(limit))
    one = order(400)
    given = {"order": one.number, "amount": 12.5, "reason": "late"}
    waits = memory.run("refund", given)
    waiting = _sample(memory, waits, one, 1)
    memory.resume(waits.run_id, answers={"agree": {"ok": True}})
    done = _sample(memory, waits, one, 10)
    failed = _sample(memory, memory.run("refund", {**given, "amount": 900}), one, 2)
    return [waiting, done, failed]


def _many(samples: Sequence[Sample], count: int, now: datetime) -> Iterator[Draft]:
    """The samples again and again, the newest last; of the very last, two are still running."""
    draw = random.Random(1)
    every = [one for one in samples for _ in range(one.share)]
    step = timedelta(days=DAYS) / count
    for number in range(count):
        sample = draw.choice(every)
        at = now - step * (count - number) + step * draw.random() * 0.9
        events = sample.events
        if number >= count - 2:
            events = events[:1]
        yield from _again(sample, events, order(draw.randrange(900)), at, number, draw)


def _again(
    sample: Sample, events: Any, one: Order, at: datetime, number: int, draw: random.Random
) -> Iterator[Draft]:
    slower = draw.uniform(1, 9)
    stream = run_stream(f"{int(at.timestamp() * 1e3):012x}{number:016x}")
    for kind, body, after in events:
        text = msgspec.json.encode(body).decode()
        for old, new in (
            (sample.order.number, one.number),
            (sample.order.customer, one.customer),
            (sample.order.email, one.email),
            (f'"{sample.order.name}"', f'"{one.name}"'),
        ):
            text = text.replace(old, new)
        told = msgspec.json.decode(text)
        if "duration_ms" in told:
            told["duration_ms"] = round(told["duration_ms"] * slower, 1)
        yield Draft(stream=stream, kind=kind, body=told, at=at + after * slower)


def _compare(memory: Memory, now: datetime) -> None:
    """Comparisons of the routine with the agent, over some days."""
    call = {"tool": "cancel_order", "args": {"order_id": "W-7311"}}
    rows: list[dict[str, Any]] = [
        {"verdict": "differed", "would_do": [call], "did": [], "reason": "one call more"},
        {"verdict": "handed_over", "reason": "it would have asked for the order"},
        *({"verdict": "agreed"} for _ in range(12)),
    ]
    memory.log.append_many(
        [
            Draft(stream="shadow/cancel_order", kind="shadow_compared",
                  body={"routine": "cancel_order@1", **body}, at=now - timedelta(days=14 - number))
            for number, body in enumerate(rows)
        ]
    )  # fmt: skip
