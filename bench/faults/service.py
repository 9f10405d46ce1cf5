"""The service: killed while clients write; who got no answer asks again with the same key."""

import random
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import chdir
from pathlib import Path
from typing import Any

import httpx

from bench.faults.act import EARLY, Verdict
from em import Memory

CLIENTS, MOST = 4, 20
"""Clients that write at once, and requests that each makes before the service is killed."""


class Clients:
    """Clients that write until their service is gone. `sent` and `answers` are by key."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.answers: dict[str, bytes] = {}

    def write(self, service: Any, turn: int) -> list[threading.Thread]:
        """Start the clients."""

        def post_all(client: int) -> None:
            for number in range(MOST):
                key = f"{turn}-{client}-{number}"
                self.sent.append(key)
                try:
                    self.answers[key] = post(service, key).content
                except httpx.HTTPError:
                    return

        threads = [threading.Thread(target=post_all, args=(n,)) for n in range(CLIENTS)]
        for thread in threads:
            thread.start()
        return threads


def post(service: Any, key: str) -> httpx.Response:
    """Send a trace under its key."""
    step = {"action": "a", "error": "e"}
    body = {"task": key, "steps": [step], "outcome": "failure"}
    answer: httpx.Response = service.post("/trajectories", body, key=key)
    return answer


def _wait_for_answer(clients: Clients, before: int) -> None:
    """Wait until one more request was answered."""
    deadline = time.monotonic() + 30
    while len(clients.answers) == before and time.monotonic() < deadline:
        time.sleep(0.01)


def killed(folder: Path, db: str, kills: int, draw: random.Random) -> tuple[Sequence[str], Verdict]:
    """Kill services in the middle of requests; then ask for everything again."""
    from tests.serve.served import Served

    clients, lease = Clients(), {"EM_API_LEASE_SECONDS": "1"}
    with chdir(folder):
        for turn in range(kills):
            service = Served(db=db, env=lease)
            before, threads = len(clients.answers), clients.write(service, turn)
            if draw.random() > EARLY:
                _wait_for_answer(clients, before)
            time.sleep(draw.uniform(0, 0.4))
            service.kill()
            for thread in threads:
                thread.join()
            service.http.close()
        service = Served(db=db, env=lease)
        wrong = []
        for key in clients.sent:
            answer = post(service, key)
            if (
                answer.status_code != 201
                or clients.answers.get(key, answer.content) != answer.content
            ):
                wrong.append(f"{key} {answer.status_code}")
        service.stop()
    with Memory(db) as memory:
        there = Counter(kept.trace.mission.goal for kept in memory.traces())
    lost = [*({*clients.answers} - there.keys()), *wrong]
    doubled = sum(count - 1 for count in there.values())
    return [*clients.answers], Verdict(len(lost), doubled, ", ".join(lost[:5]))
