"""The same key and payload: one effect, and one answer, byte for byte."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
from served import Serve, Served
from tests.children import wait_until

from em import Memory
from em.testing import SECRET

LESSON = {"trigger": "an insert fails on a foreign key", "action": "insert the parent row first"}
TRAJECTORY = {"task": "t", "steps": [{"action": "a", "error": "e1"}], "outcome": "failure"}


def test_a_repeated_request_is_answered_and_not_carried_out_again(service: Served) -> None:
    for path, body in (
        ("/heuristics", LESSON),
        ("/trajectories", TRAJECTORY),
        ("/reflect", {"trajectory": TRAJECTORY}),
        ("/observations", {"subject": "ana", "text": "hello"}),
    ):
        first = service.post(path, body, key=f"key {path}")
        events = service.get("/log", limit=200)
        again = service.post(path, body, key=f"key {path}")
        assert (again.status_code, again.content) == (first.status_code, first.content)
        assert first.status_code == 201
        assert again.headers["idempotency-replayed"] == "true"
        assert service.get("/log", limit=200) == events
        other = service.post(path, {**body, "subject": "bo"}, key=f"key {path}")
        assert other.status_code in (400, 409)
    clash = service.post("/heuristics", {**LESSON, "domain": "sql"}, key="key /heuristics")
    assert (clash.status_code, clash.json()["error"]["code"]) == (409, "key_reused")
    assert service.post("/trajectories", TRAJECTORY, key="key /heuristics").status_code == 409


def test_the_order_of_a_payloads_fields_does_not_matter(service: Served) -> None:
    first = service.post("/heuristics", LESSON, key="k")
    turned = dict(reversed(LESSON.items()))
    assert service.post("/heuristics", turned, key="k").content == first.content


def test_a_secret_is_redacted_in_the_first_answer_as_in_the_replay(service: Served) -> None:
    lesson = {**LESSON, "analysis": f"the key {SECRET} was refused"}
    first = service.post("/heuristics", lesson, key="k")
    assert SECRET not in first.text
    assert service.post("/heuristics", lesson, key="k").content == first.content


def test_replay_works_across_restarts_and_processes(serve: Serve) -> None:
    one = serve()
    first = one.post("/trajectories", TRAJECTORY, key="k")
    two = serve()
    assert two.post("/trajectories", TRAJECTORY, key="k").content == first.content
    one.stop()
    assert serve().post("/trajectories", TRAJECTORY, key="k").content == first.content


def test_many_at_once_in_two_processes_get_one_answer(serve: Serve) -> None:
    services = [serve(), serve()]

    def send(number: int) -> bytes:
        return services[number % 2].post("/trajectories", TRAJECTORY, key="k").content

    with ThreadPoolExecutor(8) as pool:
        answers = set(pool.map(send, range(16)))
    assert len(answers) == 1
    assert services[0].get("/trajectories")["pagination"]["total"] == 1


def test_a_second_waits_while_the_first_is_running(serve: Serve, tmp_path: Any) -> None:
    service = serve()
    # Somebody has claimed the key and is still at it.
    import hashlib
    from datetime import timedelta

    import msgspec

    from em.store.protocol import Commit, RequestOutcome

    with Memory("em.db") as memory:
        encode = msgspec.json.Encoder(order="sorted").encode
        key = "http/" + hashlib.sha256(encode(("local", "k"))).hexdigest()
        data = {"analysis": "", "domain": "", "polarity": "success", "source_task": ""}
        payload = {**LESSON, **data, "subject": None, "tools": [], "from_events": []}
        fingerprint = hashlib.sha256(encode(("POST /heuristics", payload))).hexdigest()
        hour = timedelta(hours=1)
        claim = memory.store.claim(key, fingerprint, lease=hour, keep=hour)
        answers: list[Any] = []
        waiting = threading.Thread(
            target=lambda: answers.append(service.post("/heuristics", LESSON, key="k"))
        )
        waiting.start()
        time.sleep(0.3)
        assert not answers
        response = b'{"body":{"said":"by the first"},"status":201}'
        outcome = RequestOutcome(key=key, owner=claim.owner, response=response)
        memory.store.commit(Commit(request=outcome))
        waiting.join(20)
    assert answers[0].content == b'{"said":"by the first"}'


def test_only_completed_requests_are_kept_and_keys_expire(serve: Serve) -> None:
    service = serve(env={"EM_API_IDEMPOTENCY_HOURS": "0.0003"})
    assert service.post("/reflect", {"trajectory_id": "nope"}, key="k").status_code == 404
    first = service.post("/trajectories", TRAJECTORY, key="k")
    assert first.status_code == 201
    time.sleep(1.2)
    assert service.post("/trajectories", TRAJECTORY, key="k").content != first.content


def test_forgetting_takes_the_stored_answer_too(service: Served) -> None:
    body = {"subject": "ana", "text": "private"}
    service.post("/observations", body, key="k")
    with Memory("em.db") as memory:
        memory.forget(subject="ana")
    gone = service.post("/observations", body, key="k")
    assert (gone.status_code, gone.json()["error"]["code"]) == (410, "response_gone")


def test_a_key_that_makes_no_sense_is_refused(service: Served) -> None:
    assert service.post("/heuristics", LESSON, key="x" * 256).status_code == 400


def test_killed_during_writes_every_acknowledged_write_is_there_once(serve: Serve) -> None:
    acknowledged: dict[str, bytes] = {}
    sent: list[str] = []
    for number in range(3):
        service = serve(env={"EM_API_LEASE_SECONDS": "1"})
        stop = threading.Event()

        def write(
            worker: int, service: Served = service, stop: threading.Event = stop, n: int = number
        ) -> None:
            for count in range(10_000):
                key = f"{n}-{worker}-{count}"
                sent.append(key)
                try:
                    answer = service.post("/trajectories", {**TRAJECTORY, "task": key}, key=key)
                except httpx.HTTPError:
                    return
                assert answer.status_code == 201
                acknowledged[key] = answer.content
                if stop.is_set():
                    return

        workers = [threading.Thread(target=write, args=(w,)) for w in range(4)]
        for worker in workers:
            worker.start()
        some = len(acknowledged) + 5
        wait_until(lambda some=some: len(acknowledged) > some)
        service.kill()
        stop.set()
        for worker in workers:
            worker.join()
    assert len(acknowledged) > 10
    service = serve(env={"EM_API_LEASE_SECONDS": "1"})
    # Who got no answer asks again with the same key.
    for key in sent:
        answer = service.post("/trajectories", {**TRAJECTORY, "task": key}, key=key)
        assert answer.status_code == 201
        assert acknowledged.get(key, answer.content) == answer.content
    with Memory("em.db") as memory:
        tasks = [kept.trace.mission.goal for kept in memory.traces()]
        assert sorted(tasks) == sorted(set(sent))
        assert memory.log.verify().ok
