"""`make bench-peers`: recall beside mem0 and chromadb, with the same texts, vectors and questions.

They are installed into an environment that is thrown away; where that fails, it is said and the
other one goes on. Each answers in a process of its own: `python -m bench.peers NAME FOLDER`.
"""

import json
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.locomo import Locomo

PEERS = {"chromadb": ["chromadb"], "mem0": ["mem0ai", "qdrant-client"]}
SIZE = 384


def main() -> int:
    from bench.locomo import load
    from bench.model import development_model
    from bench.recall import judge, line

    data, embed = load(), development_model()
    if data is None or embed is None:
        return 0
    conversations = data.conversations
    texts = [turn["text"] for c in conversations for turn in c.turns]
    questions = [asked.text for c in conversations for asked in c.questions]
    print(f"embedding {len(texts):,} turns and {len(questions):,} questions once for all")
    known = dict(zip([*texts, *questions], embed([*texts, *questions]), strict=True))

    def report(what: str, found: Sequence[Sequence[str]], times: Sequence[float]) -> None:
        answers = iter(found)
        scores = judge(conversations, lambda _c, _a: next(answers))
        print(line(what, scores) + f"   {median(times) * 1e3:8.2f} ms")

    def cached(texts: Sequence[str]) -> list[Any]:
        missing = [text for text in texts if text not in known]
        known.update(zip(missing, embed(missing) if missing else [], strict=True))
        return [known[text] for text in texts]

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        given = {
            "turns": [[c.name, t["source"], t["text"]] for c in conversations for t in c.turns],
            "asked": [[c.name, asked.text] for c in conversations for asked in c.questions],
            "vectors": {text: [float(x) for x in vector] for text, vector in known.items()},
        }
        (folder / "given.json").write_text(json.dumps(given))
        print("    recall@10 and @30: all, categories 1 to 5; time of one search")
        for what, embedder in (("em, by words", None), ("em, with the same vectors", cached)):
            report(what, *_ours(data, embedder))
        for peer, packages in PEERS.items():
            answer = _ask(peer, packages, folder)
            if answer is not None:
                report(answer["what"], answer["found"], answer["times"])
    return 0


def _ours(data: "Locomo", embedder: Any) -> tuple[list[list[str]], list[float]]:
    from bench.recall import fill
    from em import Memory
    from em.recall.search import Recall
    from em.store.protocol import Within

    with tempfile.TemporaryDirectory() as name, Memory(Path(name) / "em.db") as memory:
        sources = fill(memory, data)
        recall = Recall(memory.store, embedder)
        if embedder is not None:
            recall.embed_all()
        for _ in range(2):  # at first the embedder sees the questions: the others are given vectors
            found, times = [], []
            for conversation in data.conversations:
                for asked in conversation.questions:
                    start = time.perf_counter()
                    passages = recall.recall(asked.text, Within(conversation.name), 30)
                    times.append(time.perf_counter() - start)
                    found.append([sources[passage.event_id] for passage in passages])
    return found, times


def _ask(peer: str, packages: Sequence[str], folder: Path) -> dict[str, Any] | None:
    """Install a peer, let it answer, and read what it found; None where it can't be had."""
    home = folder / f"env-{peer}"
    try:
        venv.create(home, with_pip=True)
        python = str(home / "bin" / "python")
        install = [python, "-m", "pip", "install", "--quiet", *packages]
        subprocess.run(install, check=True, capture_output=True, timeout=900)
        run = [python, str(Path(__file__)), peer, str(folder)]
        subprocess.run(run, check=True, capture_output=True, timeout=1_800, cwd=folder)
    except subprocess.CalledProcessError as error:
        last = (error.stderr or b"").decode(errors="replace").strip().splitlines()[-1:]
        print(f"    {peer} can't be had here: {' '.join(last)[:200]}")
        return None
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"    {peer} can't be had here: {str(error)[:200]}")
        return None
    answer: dict[str, Any] = json.loads((folder / f"{peer}.json").read_text())
    return answer


# --- in the peer's environment: nothing of em is installed there ---------------------------------


def answer(peer: str, folder: Path) -> None:
    given = json.loads((folder / "given.json").read_text())
    what, search = {"chromadb": _chromadb, "mem0": _mem0}[peer](given, folder)
    found, times = [], []
    for name, question in given["asked"]:
        start = time.perf_counter()
        found.append(search(name, question))
        times.append(time.perf_counter() - start)
    (folder / f"{peer}.json").write_text(json.dumps({"what": what, "found": found, "times": times}))


Search = Callable[[str, str], list[str]]


def _chromadb(given: dict[str, Any], folder: Path) -> tuple[str, Search]:
    import chromadb

    client = chromadb.PersistentClient(str(folder / "chroma"))
    collection = client.create_collection("turns", metadata={"hnsw:space": "cosine"})
    turns = given["turns"]
    for start in range(0, len(turns), 1_000):
        part = turns[start : start + 1_000]
        collection.add(
            ids=[f"{name} {source}" for name, source, _ in part],
            documents=[text for _, _, text in part],
            embeddings=[given["vectors"][text] for _, _, text in part],
            metadatas=[{"conversation": name} for name, _, _ in part],
        )

    def search(name: str, question: str) -> list[str]:
        hits = collection.query(
            query_embeddings=[given["vectors"][question]],
            n_results=30,
            where={"conversation": name},
        )
        return [hit.split(" ", 1)[1] for hit in hits["ids"][0]]

    return f"chromadb {chromadb.__version__}", search


def _mem0(given: dict[str, Any], folder: Path) -> tuple[str, Search]:
    """`infer=False`: what was said is kept as it is; nothing asks a model."""
    import os
    from importlib.metadata import version

    os.environ |= {"MEM0_TELEMETRY": "False", "OPENAI_API_KEY": "none", "MEM0_DIR": str(folder)}
    from mem0 import Memory

    store = {"collection_name": "t", "embedding_model_dims": SIZE, "path": str(folder / "qdrant")}
    memory = Memory.from_config(
        {
            "vector_store": {"provider": "qdrant", "config": {**store, "on_disk": True}},
            "embedder": {"provider": "openai", "config": {"api_key": "none"}},
            "llm": {"provider": "openai", "config": {"api_key": "none"}},
        }
    )

    # It trims what it is given.
    trimmed = {text.strip(): vector for text, vector in given["vectors"].items()}

    class Given:
        config = memory.embedding_model.config

        def embed(self, text: str, *_args: Any, **_more: Any) -> list[float]:
            vector: list[float] = trimmed[text.strip()]
            return vector

        def embed_batch(self, texts: list[str], *_args: Any, **_more: Any) -> list[list[float]]:
            return [self.embed(text) for text in texts]

    memory.embedding_model = Given()
    sources: dict[str, str] = {}
    for name, source, text in given["turns"]:
        added = memory.add(
            [{"role": "user", "content": text}],
            user_id=name,
            infer=False,
        )
        for item in added["results"]:
            sources[item["id"]] = source

    def search(name: str, question: str) -> list[str]:
        try:
            hits = memory.search(question, filters={"user_id": name}, top_k=30, threshold=0.0)
        except TypeError:  # its arguments were called so before version 2
            hits = memory.search(question, user_id=name, limit=30)
        return [sources[item["id"]] for item in hits["results"]]

    return f"mem0 {version('mem0ai')}, infer=False", search


if __name__ == "__main__":
    if len(sys.argv) == 3:
        answer(sys.argv[1], Path(sys.argv[2]))
    else:
        sys.exit(main())
