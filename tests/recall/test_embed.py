"""Embedders: the model on this machine, a server, and what they say when something is wrong."""

import json
import threading
import time
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from shutil import copy
from typing import Any, ClassVar

import pytest
from bench.model import PINS, model_files

from em import Memory, Settings
from em.errors import EmbedderError, UsageError
from em.recall import embed as embed_module
from em.recall.embed import HttpEmbedder, LocalEmbedder, Meaning, make_embedder
from em.recall.search import Recall
from em.settings import EmbedSettings


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the development model, as a user would name one."""
    path = tmp_path_factory.mktemp("model")
    files = model_files()
    assert files is not None
    for name, source in files.items():
        copy(source, path / name)
    return path


def test_a_model_in_a_folder_finds_by_meaning(folder: Path, tmp_path: Path) -> None:
    settings = Settings(embed=EmbedSettings(use="local", folder=str(folder), sha256=PINS))
    with Memory(tmp_path / "em.db", settings=settings) as memory:
        memory.observe("ana", "My puppy chewed up the sofa", session="1")
        memory.observe("ana", "The quarterly taxes are due on Monday", session="2")
        found = memory.recall("what did the dog do to the furniture", subject="ana")
        assert found.notes == []
        assert found[0].text == "My puppy chewed up the sofa"
        assert memory.embed() == 0


def test_vectors_do_not_depend_on_what_else_is_embedded(folder: Path) -> None:
    embed = LocalEmbedder(folder, PINS)
    (alone,) = embed(["a dog"])
    among = embed(["a dog", "something much longer about the weather in the north", "x"])[0]
    assert sum(a * b for a, b in zip(alone, among, strict=True)) > 0.98
    assert embed([]) == []


def test_a_model_that_is_not_the_pinned_one_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(EmbedderError, match="differs from the pinned one"):
        LocalEmbedder(folder)(["x"])
    with pytest.raises(EmbedderError, match="can't read the model"):
        LocalEmbedder(tmp_path)(["x"])


def test_without_a_network_the_model_can_be_had_from_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("em.recall.embed._HOME", "http://127.0.0.1:9/")
    with Memory(":memory:", settings=Settings(embed=EmbedSettings(use="local"))) as memory:
        memory.observe("ana", "found by words")
        found = memory.recall("words")
        assert len(found) == 1
        assert "name a folder" in found.notes[0]
    assert list(tmp_path.rglob("*.part")) == []


class Server(BaseHTTPRequestHandler):
    """Speaks OpenAI's protocol for embeddings, out of order and with a key."""

    asked: ClassVar[list[dict[str, Any]]] = []
    mode = "fine"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        Server.asked.append({"path": self.path, "key": self.headers["Authorization"], **body})
        if Server.mode == "slow":
            time.sleep(1)
        if Server.mode == "broken":
            self.send_error(500)
            return
        if Server.mode == "cut":
            self.connection.close()
            return
        rows = [
            {"index": n, "embedding": [float(len(text)), 1.0]}
            for n, text in enumerate(body["input"])
        ]
        answer = b"[]" if Server.mode == "odd" else json.dumps({"data": rows[::-1]}).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_args: object) -> None:
        """Nothing on the terminal."""


@pytest.fixture
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as http:
        Server.asked, Server.mode = [], "fine"
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}/v1"
        http.shutdown()
        thread.join()


def test_a_server_is_asked_in_portions_and_its_answers_put_in_order(server: str) -> None:
    embed = HttpEmbedder(server, "small", key="k", batch=2)
    assert [vector[0] for vector in embed(["a", "bb", "ccc"])] == [1.0, 2.0, 3.0]
    assert [request["input"] for request in Server.asked] == [["a", "bb"], ["ccc"]]
    asked = Server.asked[0]
    assert (asked["path"], asked["key"], asked["model"]) == ("/v1/embeddings", "Bearer k", "small")


@pytest.mark.parametrize(
    ("mode", "match"),
    [
        ("broken", "answered with 500"),
        ("slow", "no answer within 0.2 seconds"),
        ("cut", "the connection failed"),
        ("odd", "not in OpenAI's format"),
    ],
)
def test_a_server_that_fails_leaves_the_words(server: str, mode: str, match: str) -> None:
    Server.mode = mode
    with Memory(":memory:", embedder=HttpEmbedder(server, "m", timeout=0.2)) as memory:
        memory.observe("ana", "alpha")
        found = memory.recall("alpha")
        assert [passage.text for passage in found] == ["alpha"]
        assert match in found.notes[0]


def test_settings_name_the_embedder(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "em.yaml").write_text(
        f"embed: {{url: '{server}', model: m, key_env: MY_KEY}}\ndb: em.db\n"
    )
    monkeypatch.setenv("EM_EMBED", "http")
    monkeypatch.setenv("MY_KEY", "secret")
    with Memory() as memory:
        memory.observe("ana", "alpha")
        assert memory.recall("alpha").notes == []
    assert Server.asked[0]["key"] == "Bearer secret"
    assert make_embedder(EmbedSettings()) is None
    with pytest.raises(UsageError, match="address of a server"):
        HttpEmbedder("ftp://x", "m")
    monkeypatch.setenv("EM_EMBED", "elsewhere")
    with pytest.raises(UsageError, match="elsewhere"):
        Settings.load()


def test_without_an_embedder_there_is_nothing_to_embed() -> None:
    with Memory(":memory:") as memory, pytest.raises(UsageError, match="no embedder"):
        memory.embed()


@pytest.mark.parametrize("vector", [[0.0, 0.0], [float("nan"), 1.0], [float("inf"), 1.0]])
def test_a_vector_without_a_direction_is_refused(vector: list[float]) -> None:
    with Memory(":memory:") as memory:
        meaning = Meaning(memory.store, lambda texts: [vector] * len(texts))
        with pytest.raises(EmbedderError):
            meaning.vector("a text")


@pytest.mark.parametrize(("is_search", "portions"), [(True, [1, 4]), (False, [1, 4, 2, 1, 1, 2])])
def test_only_a_search_gives_up_a_slow_embedder_at_once(
    monkeypatch: pytest.MonkeyPatch, is_search: bool, portions: list[int]
) -> None:
    monkeypatch.setattr(embed_module, "SLOW", -1.0)  # every failure counts as slow
    calls = []

    def embed(texts: Sequence[str]) -> list[list[float]]:
        calls.append(len(texts))
        if any("poison" in text for text in texts):
            raise ValueError("no")
        return [[1.0, 0.0]] * len(texts)

    with Memory(":memory:", embedder=embed) as memory:
        memory.observe_many([("ana", f"word {n}{' poison' * (n == 2)}") for n in range(4)])
        if is_search:
            assert len(memory.recall("word", subject="ana").notes) == 2
        else:
            assert Recall(memory.store, embed).embed_all() == 1
    assert calls == portions
