"""What em costs in a session of a real coding agent: tokens in its requests, and time beside none.

The figures are printed (`pytest -s`). Only tokens have a bar here: times depend on the machine.
"""

import json
import time
from pathlib import Path
from statistics import median

from tests.clients.coding_agents import Codex, CodingAgent

from em import Memory
from em.clients.hook_service import end_service
from em.clients.plugin import socket_of
from em.runner.package import keep_routine

OWN_TOKENS, ROUTINE_TOKENS = 1_000, 60
ROUTINES = 10
REPEATS = 5
ROUTINE = """\
name: cancel_order_{}
description: Cancel a pending order of the customer who asks.
input_schema:
  type: object
  required: [email, order_id, reason]
  properties:
    email: {{type: string, format: email, description: "e-mail of the customer"}}
    order_id: {{type: string, pattern: "^#W[0-9]+$", examples: ["#W1001"]}}
    reason: {{enum: [no longer needed, ordered by mistake]}}
steps: [{{id: out, type: return, value: "{{{{ order_id }}}}"}}]
"""


def request_tokens(agent: CodingAgent) -> float:
    """Return about how many tokens the first request of a session takes: a quarter of its bytes."""
    before = len(agent.model.requests)
    agent.run("say hello to the orders", "Hello.")
    first = next(seen for seen in agent.model.requests[before:] if seen.body.get("tools"))
    return len(json.dumps(first.body, ensure_ascii=False).encode()) / 4


def session_seconds(agent: CodingAgent) -> float:
    began = time.perf_counter()
    agent.run("count the files", *[agent.shell(f"ls {n}* | wc -l") for n in range(5)], "None.")
    return time.perf_counter() - began


def _compared(pair: tuple[float, float]) -> tuple[float, float]:
    return pair[0] / pair[1], pair[0] - pair[1]


def test_what_em_adds_to_a_request_and_to_a_session(agent: CodingAgent, tmp_path: Path) -> None:
    db = tmp_path / "memory.db"
    (tmp_path / "without").mkdir()
    without = type(agent)(tmp_path / "without", agent.model)
    if isinstance(agent, Codex):
        without.options = agent.options = ("--dangerously-bypass-hook-trust",)
    bare = [request_tokens(without) for _ in range(2)][-1]
    agent.em("install", agent.name, "--db", str(db))
    try:
        request_tokens(agent)  # the first start of all makes the cards, and compiles modules
        empty = request_tokens(agent)
        with Memory(db) as memory:
            for number in range(ROUTINES):
                keep_routine(memory.store, {"routine.yaml": ROUTINE.format(number)})
        request_tokens(agent)  # the skill and the cards follow
        full = request_tokens(agent)
        own, each = empty - bare, (full - empty) / ROUTINES
        pairs = [(session_seconds(agent), session_seconds(without)) for _ in range(REPEATS)]
        ratio, more = (median(found) for found in zip(*map(_compared, pairs), strict=True))
        print(
            f"\n{agent.name}: em adds {own:.0f} tokens to a request, {each:.0f} for each of"
            f" {ROUTINES} routines; a session of five commands, with a model that answers at once,"
            f" takes {ratio:.2f} times as long, {more:.2f} s more"
        )
        assert own <= OWN_TOKENS
        assert each < ROUTINE_TOKENS
    finally:
        end_service(socket_of(str(db)))
