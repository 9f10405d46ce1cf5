"""Lessons are found by meaning too, where an embedder is set; it may be a server elsewhere."""

import json
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from em import Memory
from em.heuristics.heuristic import Lesson

TOPICS = (("invoice", "bill"), ("parcel", "shipment"), ("denied", "allowed"), ("bread", "salt"))
INVOICE = Lesson(trigger="create_invoice fails: permission denied", action="ask for the role")
PARCEL = Lesson(trigger="the shipment is lost", action="call the carrier")
TASK = "the bill, which we are not allowed to write"


def embed(texts: Sequence[str]) -> list[list[float]]:
    return [[0.01 + any(w in text for w in topic) for topic in TOPICS] for text in texts]


class Server(BaseHTTPRequestHandler):
    fails = False
    asked = 0

    def do_POST(self) -> None:
        texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input"]
        Server.asked += len(texts)
        data = [{"embedding": vector, "index": n} for n, vector in enumerate(embed(texts))]
        body = json.dumps({"data": data}).encode()
        self.send_response(500 if Server.fails else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def address() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as http:
        Server.fails, Server.asked = False, 0
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}/v1"
        http.shutdown()
        thread.join()


def test_a_lesson_in_other_words_is_found_through_the_server_that_is_set(
    address: str, tmp_path: Path
) -> None:
    with Memory("em.db") as memory:
        (invoice, _) = memory.heuristics.keep([INVOICE, PARCEL])
        assert not memory.brief(TASK)  # no word in common
    (tmp_path / "em.yaml").write_text(f"embed: {{use: http, url: '{address}', model: m}}")
    with Memory("em.db") as memory:
        briefing = memory.brief(TASK)
        assert (briefing.ids, list(briefing.notes)) == ([invoice.id], [])
        assert briefing.heuristics[0].reasons["meaning"] > 0.9
        # Lessons are embedded once, a task once however often it is asked for.
        asked = Server.asked
        assert memory.brief(TASK).ids == [invoice.id]
        assert Server.asked == asked
        assert not memory.brief("bake bread with less salt")
        # A lesson that comes later is found as well, and one that is retired is not.
        (late,) = memory.heuristics.keep([Lesson(trigger="bills are double", action="merge")])
        assert set(memory.brief(TASK).ids) == {invoice.id, late.id}
        memory.heuristics.retire(invoice.id)
        assert memory.brief(TASK).ids == [late.id]


def test_a_server_that_fails_leaves_the_words_and_that_is_said(address: str) -> None:
    from em.recall.embed import HttpEmbedder

    Server.fails = True
    with Memory("em.db", embedder=HttpEmbedder(address, "m")) as memory:
        (kept,) = memory.heuristics.keep([PARCEL])
        briefing = memory.brief("a lost shipment")
        assert briefing.ids == [kept.id]
        assert "by words only" in briefing.notes[0]


def test_lessons_are_not_among_what_was_said_nor_the_other_way_round() -> None:
    with Memory(":memory:", embedder=embed) as memory:
        memory.heuristics.keep([INVOICE])
        memory.observe("ana", "the bill is not allowed to be late")
        assert [one.subject for one in memory.recall("invoice denied")] == ["ana"]
        assert [one.heuristic.lesson.trigger for one in memory.brief(TASK).heuristics] == [
            INVOICE.trigger
        ]


def test_a_lesson_about_somebody_else_is_not_near() -> None:
    import msgspec

    with Memory(":memory:", embedder=embed) as memory:
        memory.heuristics.keep([msgspec.structs.replace(INVOICE, subject="bo")])
        assert not memory.brief(TASK)
        assert not memory.brief(TASK, subject="ana")
        assert memory.brief(TASK, subject="bo")


def test_forgetting_takes_a_lessons_vector(tmp_path: Path) -> None:
    import sqlite3

    with Memory("em.db", embedder=embed) as memory:
        (kept,) = memory.heuristics.keep([INVOICE])
        assert memory.brief(TASK)
        learned = [event.id for event in memory.log.read(stream=f"heuristic/{kept.id}")]
        memory.forget(learned)
        assert not memory.brief(TASK)
    connection = sqlite3.connect("em.db")
    assert connection.execute("SELECT count(*) FROM vectors").fetchone() == (0,)
    connection.close()
