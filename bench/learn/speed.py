"""What learning costs as traces grow in number, and what a step of a learnt routine costs.

`python -m bench.learn.speed TRACES` learns in a process of its own, to see its memory.
"""

import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.figure import Figure, in_turns, seconds
from bench.learn.learner import Learner, Learnt, Way

MANY, FEW = 300, 30
SECONDS, MEGABYTES, TIMES, OVERHEAD = 5, 1_000, 15, 1.3
"""The bars. Ten times as many traces may take 15 times as long: squared growth would be 100."""
WORDS = "amber basil cedar delta ember fern grove hazel iris jade kelp lotus maple nova".split()
ROUNDS = 40
HEAD = """\
name: refund
input_schema:
  type: object
  properties: {email: {type: string}, order_id: {type: string}, reason: {type: string}}
steps:
"""
STEPS = {
    "find_customer": """\
  - {id: a, type: tool.call, tool: find_customer, args: {email: "{{ email }}"}, save_as: found}
""",
    "get_customer": """\
  - {id: b, type: tool.call, tool: get_customer,
     args: {customer_id: "{{ found.customer_id }}"}, save_as: customer}
""",
    "list_orders": """\
  - {id: c, type: tool.call, tool: list_orders,
     args: {customer_id: "{{ found.customer_id }}"}, save_as: orders}
""",
    "get_order": """\
  - {id: d, type: tool.call, tool: get_order, args: {order_id: "{{ order_id }}"}, save_as: order}
""",
    "get_shipment": """\
  - {id: e, type: tool.call, tool: get_shipment,
     args: {shipment_id: "{{ order.shipment_id }}"}, save_as: shipment}
""",
    "get_depot": """\
  - {id: f, type: tool.call, tool: get_depot,
     args: {depot_id: "{{ shipment.depot_id }}"}, save_as: depot}
""",
    "get_invoice": """\
  - {id: g, type: tool.call, tool: get_invoice,
     args: {invoice_id: "{{ order.invoice_id }}"}, save_as: invoice}
""",
    "get_payment": """\
  - {id: h, type: tool.call, tool: get_payment,
     args: {payment_id: "{{ invoice.payment_id }}"}, save_as: payment}
""",
    "get_policy": """\
  - {id: i, type: tool.call, tool: get_policy,
     args: {category: "{{ order.category }}"}, save_as: policy}
""",
    "refund_order": """\
  - {id: j, type: tool.call, tool: refund_order, effect: write,
     args: {order_id: "{{ order_id }}", amount: "{{ invoice.total }}",
            payment_id: "{{ invoice.payment_id }}", reason: "{{ reason }}"}, save_as: refund}
""",
}
END = """\
  - {id: k, type: return, value: "{{ refund }}"}
"""


def hand_written(tools: Collection[str]) -> str:
    """A routine that calls these tools of the shop, as somebody writes it who checks nothing."""
    return HEAD + "".join(step for tool, step in STEPS.items() if tool in tools) + END


class Shop:
    """A made-up shop: its records follow from a number, and each task needs ten calls."""

    def __init__(self, number: int) -> None:
        draw = random.Random(f"shop {number}")
        first, last = draw.sample(WORDS, 2)
        key = f"{draw.randrange(10**6):06}"
        self.email = f"{first}.{last}{key[:3]}@example.com"
        self.order_id, self.reason = f"#W{key}", draw.choice(("too late", "broken", "wrong size"))
        lines = [{"sku": f"S{draw.randrange(10**5)}", "price": n + 0.5} for n in range(12)]
        orders = [f"#W{draw.randrange(10**6):06}" for _ in range(4)]
        owner, category = f"c_{key}", draw.choice(WORDS)
        self.records: dict[str, dict[str, Any]] = {
            "find_customer": {"customer_id": owner},
            "get_customer": {"customer_id": owner, "name": [first, last], "email": self.email},
            "list_orders": {"orders": [*orders, self.order_id], "customer_id": owner},
            "get_order": {
                "order_id": self.order_id,
                "customer_id": owner,
                "status": "delivered",
                "category": category,
                "shipment_id": f"sh_{key}",
                "invoice_id": f"in_{key}",
                "lines": lines,
            },
            "get_shipment": {"shipment_id": f"sh_{key}", "depot_id": f"d_{key}", "stops": lines},
            "get_depot": {"depot_id": f"d_{key}", "city": draw.choice(WORDS)},
            "get_invoice": {"total": float(key) / 100, "payment_id": f"pay_{key}", "lines": lines},
            "get_payment": {"payment_id": f"pay_{key}", "method": "card", "order": self.order_id},
            "get_policy": {"category": category, "days": 30},
            "refund_order": {"refund_id": f"r_{key}"},
        }

    @property
    def inputs(self) -> dict[str, str]:
        return {"email": self.email, "order_id": self.order_id, "reason": self.reason}

    @property
    def request(self) -> str:
        return f"I am {self.email}. Please refund order {self.order_id}: it was {self.reason}."

    def args(self) -> Iterator[tuple[str, dict[str, Any]]]:
        known = self.records
        order, invoice = known["get_order"], known["get_invoice"]
        owner = {"customer_id": order["customer_id"]}
        yield "find_customer", {"email": self.email}
        yield "get_customer", owner
        yield "list_orders", owner
        yield "get_order", {"order_id": self.order_id}
        yield "get_shipment", {"shipment_id": order["shipment_id"]}
        yield "get_depot", {"depot_id": known["get_shipment"]["depot_id"]}
        yield "get_invoice", {"invoice_id": order["invoice_id"]}
        yield "get_payment", {"payment_id": invoice["payment_id"]}
        yield "get_policy", {"category": order["category"]}
        yield (
            "refund_order",
            {
                "order_id": self.order_id,
                "amount": invoice["total"],
                "payment_id": invoice["payment_id"],
                "reason": self.reason,
            },
        )

    def trace(self) -> dict[str, Any]:
        events: list[dict[str, Any]] = [{"type": "message", "role": "user", "text": self.request}]
        for tool, args in self.args():
            effect = "write" if tool == "refund_order" else "read"
            call = {"type": "tool_call", "tool": tool, "args": args, "effect": effect}
            events.append({**call, "result": self.records[tool]})
        output = self.records["refund_order"]
        mission = {"goal": self.request, "input_summary": self.inputs}
        trace = {"version": "1", "mission": mission, "events": events}
        return {**trace, "final_output": output, "outcome": "success"}

    def tools(self) -> dict[str, Callable[..., Any]]:
        return {name: self._tool(record) for name, record in self.records.items()}

    @staticmethod
    def _tool(record: Mapping[str, Any]) -> Callable[..., Any]:
        def call(**_args: Any) -> Any:
            return dict(record)

        return call


def learnt_from(count: int, folder: Path) -> tuple[Learner, Learnt | str, float]:
    """Learn from so many traces. Return the learner, what it learnt, and the seconds."""
    learner = Learner(folder)
    traces = {f"shop {number}": Shop(number).trace() for number in range(count)}
    learner.record(traces)
    start = time.perf_counter()
    learnt = learner.learn("refund", [*traces])
    return learner, learnt, time.perf_counter() - start


def growth() -> Iterator[Figure]:
    """Seconds and memory of learning from many traces, and seconds beside those from few."""
    few, many = _apart(FEW), _apart(MANY)
    if many["problem"]:
        print(f"nothing was learnt from {MANY} traces: {many['problem']}")
    what = f"learning from {MANY} traces of 10 calls"
    took, used = many["seconds"], many["megabytes"]
    yield Figure(f"{what}: seconds", took, "at most", SECONDS, "s", took, SECONDS, False)
    yield Figure(f"{what}: memory", used, "at most", MEGABYTES, "MB", used, MEGABYTES, False)
    times = took / few["seconds"]
    yield Figure(f"{what}: time", took, f"from {FEW}", few["seconds"], "s", times, TIMES, False)


def _apart(count: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.learn.speed", str(count)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    return found


def main(count: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        learner, learnt, took = learnt_from(count, Path(name))
        learner.close()
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    problem = learnt if isinstance(learnt, str) else ""
    print(json.dumps({"seconds": took, "megabytes": megabytes, "problem": problem}))


def overhead(folder: Path) -> Iterator[Figure]:
    """A learnt routine beside a hand-written one that makes the same calls with the same inputs.

    The hand-written one checks nothing; the learnt one has steps that check. The bar is for a
    step, with tools given as functions, which each run inspects; beside it stand a whole run, and
    a run whose tools were registered before.
    Measured on an unseen task; a learner that only asks there, on a task that it saw; one that
    only asks there too, on the task of a single trace.
    """
    for count in (FEW, 1):
        learner, learnt, _ = learnt_from(count, folder / f"overhead-{count}")
        number = None if isinstance(learnt, str) else _done(learnt, count)
        if number is not None and isinstance(learnt, Learnt):
            kind = "an unseen" if number == MANY else "a seen"
            print(f"learnt from {count} traces, measured on {kind} task")
            written = folder / "refund"
            written.mkdir()
            (written / "routine.yaml").write_text(hand_written(learnt.tools()))
            yield from _sides(learnt, Learnt(learner.memory, written), Shop(number))
        learner.close()
        if number is not None:
            return
    print("what was learnt does no task, so its steps can't be measured")


def _done(learnt: Learnt, count: int) -> int | None:
    """A task that a learnt routine does: an unseen one, else one that it was learnt from."""
    numbers: list[int] = [MANY, *range(count)]
    for number in numbers:
        shop = Shop(number)
        if learnt.run(shop.request, shop.tools(), shop.inputs).status == "ok":
            return number
    return None


WAYS: dict[str, tuple[Way, float | None]] = {
    "without a journal": (Way(), OVERHEAD),
    "journalled": (Way(journal=True), OVERHEAD),
    "without a journal, tools registered before": (Way(registered=True), None),
}
"""How routines are run, each with its bar."""


def _sides(learnt: Learnt, written: Learnt, shop: Shop) -> Iterator[Figure]:
    given, tools = shop.inputs, shop.tools()
    for how, (way, bar) in WAYS.items():
        with (
            learnt.prepared(given, tools, way) as ours,
            written.prepared(given, tools, way) as theirs,
        ):
            steps, fewer = ours(), theirs()
            mine, other, ratio = in_turns(_each(ours), _each(theirs), rounds=15)
        what = f"a run of a learnt routine with {steps - fewer} checks, {how}: microseconds"
        yield Figure(what, mine * 1e6, "hand-written", other * 1e6, "µs", ratio, None, False)
        per, beside = mine / steps * 1e6, other / fewer * 1e6
        what = f"a step of a learnt routine, {how}: microseconds"
        yield Figure(what, per, "hand-written", beside, "µs", ratio * fewer / steps, bar, False)


def _each(run: Callable[[], int]) -> Callable[[], float]:
    def work() -> None:
        for _ in range(ROUNDS):
            run()

    return lambda: seconds(work) / ROUNDS


if __name__ == "__main__":
    main(int(sys.argv[1]))
