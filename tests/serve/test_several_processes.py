"""`em serve --workers N`: processes that share nothing but the store, and lose no request."""

import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from served import Serve, Served
from tests.children import wait_until

from em import Memory


def pids(service: Served, event: str) -> set[int]:
    return {line["pid"] for line in list(service.lines) if line["event"] == event}


def alive(service: Served) -> set[int]:
    """Wait until two processes are ready and no other is there; return their ids."""

    def now() -> set[int]:
        return {pid for pid in pids(service, "ready") if is_running(pid)}

    wait_until(lambda: len(now()) == 2)
    return now()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Two processes for all tests of this module, since each takes long to start."""
    folder = tmp_path_factory.mktemp("pair")
    here = Path.cwd()
    os.chdir(folder)
    try:
        service = Served("--workers", "2", db=str(folder / "em.db"))
    finally:
        os.chdir(here)
    service.folder = folder  # type: ignore[attr-defined]
    yield service
    assert service.stop() == 0


class Load:
    """Clients that write on connections they keep open, until they are told to stop."""

    def __init__(self, service: Served, clients: int) -> None:
        self.problems: list[str] = []
        self.kept: list[str] = []
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._write, args=(service.url, number))
            for number in range(clients)
        ]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _write(self, url: str, client: int) -> None:
        with httpx.Client(base_url=url, timeout=60) as http:
            number = 0
            while not self._stop.is_set():
                number += 1
                body = {"subject": f"s{client}", "text": f"thing {number} of {client}"}
                try:
                    answer = http.post("/observations", json=body)
                except httpx.HTTPError as error:
                    self.problems.append(repr(error))
                    return
                if answer.status_code != 201:
                    self.problems.append(f"{answer.status_code}: {answer.text}")
                    return
                self.kept.append(answer.json()["id"])


def test_processes_are_replaced_under_load_and_no_request_is_lost(pair: Served) -> None:
    before = alive(pair)
    with Load(pair, 2) as load:
        wait_until(lambda: len(load.kept) > 20)
        pair.process.send_signal(signal.SIGHUP)
        wait_until(lambda: before.isdisjoint(alive(pair)))
        so_far = len(load.kept)
        wait_until(lambda: len(load.kept) > so_far + 20)
    assert load.problems == []
    assert before <= pids(pair, "ended")
    with Memory(pair.lines[0]["store"]) as memory:
        stored = {event.id for event in memory.log.read()}
    assert set(load.kept) <= stored


def test_a_process_that_dies_is_started_again_and_the_others_serve(pair: Served) -> None:
    victim, other = alive(pair)
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: not is_running(victim))
    assert pair.get("/healthz/ready")["status"] == "ok"
    assert other in alive(pair)


def test_if_a_successor_can_not_start_its_predecessor_goes_on(pair: Served, tmp_path: Path) -> None:
    before = alive(pair)
    settings = pair.folder / "em.yaml"  # type: ignore[attr-defined]
    settings.write_text("api: {lease_seconds: soon}")
    try:
        pair.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "aborting the restart" in json.dumps(pair.lines))
    finally:
        settings.unlink()
    assert "lease_seconds" in json.dumps(pair.lines)
    assert alive(pair) == before
    assert pair.get("/healthz/live") == {"status": "ok"}


def test_processes_end_when_their_parent_is_killed(serve: Serve) -> None:
    service = serve("--workers", "2")
    pids = alive(service)
    service.kill()
    wait_until(lambda: not any(is_running(pid) for pid in pids))


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
