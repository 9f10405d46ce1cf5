"""Workflows: what a step costs, and what naming the context saves."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.figure import Figure, in_turns, seconds
from bench.model import model_files

STEPS, RUNS = 50, 10
ROOT = Path(__file__).parent.parent


def overhead() -> Iterator[Figure]:
    """A step of a 50-step workflow, its needs resolved and its result in the journal.

    Beside one insert that is committed, with the same durability.
    """
    for synchronous in ("normal", "full"):
        yield _beside_an_insert(synchronous)


def _beside_an_insert(synchronous: Any) -> Figure:
    from bench.store import EVENTS_TABLE, INSERT, plain_connection, plain_rows
    from em.store.sqlite import SqliteStore
    from em.workflows import Workflows

    numbers = iter(range(1_000_000))

    def add(x: int, y: int) -> int:
        return x + y

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "flow.yaml"
        file.write_text(_chain_of_sums())

        def ours() -> float:
            path = folder / f"{next(numbers)}.db"
            with SqliteStore(path, synchronous=synchronous) as store:
                flow = Workflows(store, file=file, tools={"add": add})
                workflow = flow.file.workflow("sums")
                flow.start_this(workflow)  # planned once, as by a worker that runs many
                return seconds(lambda: [flow.start_this(workflow) for _ in range(RUNS)]) / (
                    RUNS * STEPS
                )

        def plain() -> float:
            connection = plain_connection(folder / f"{next(numbers)}.plain")
            connection.execute(f"PRAGMA synchronous={synchronous}")
            connection.executescript(EVENTS_TABLE)
            rows = plain_rows(0, RUNS * STEPS)

            def work() -> None:
                for row in rows:
                    connection.execute("BEGIN IMMEDIATE")
                    connection.execute(INSERT, row)
                    connection.execute("COMMIT")

            took = seconds(work) / (RUNS * STEPS)
            connection.close()
            return took

        mine, other, ratio = in_turns(ours, plain, rounds=7)
        return Figure(
            f"one step of a {STEPS}-step workflow, journal on, synchronous={synchronous}",
            mine * 1e6,
            "one insert of such a row, committed",
            other * 1e6,
            "µs",
            ratio,
            2,
            False,
        )


def _chain_of_sums() -> str:
    steps = []
    for n in range(STEPS):
        before = f"memory.s{n - 1}_output" if n else "params.x"
        needs = f"[tool_output(s{n - 1})]" if n else "[]"
        steps.append(
            f"      - {{name: s{n}, tool: add, effect: read, memory: {{needs: {needs}}},"
            f" inputs: {{x: '{{{{{before}}}}}', y: 1}}}}\n"
        )
    return f"workflows:\n  sums:\n    params: [{{x: 0}}]\n    steps:\n{''.join(steps)}"


def tokens() -> Iterator[Figure]:
    """Tokens sent with needs, beside those of the full context, by a real tokenizer."""
    files = model_files()
    if files is None:
        print("the development model is not installed; this bench is passed over")
        return
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(files["tokenizer.json"]))
    tokenizer.no_truncation()

    def count(text: str) -> int:
        return len(tokenizer.encode(text, add_special_tokens=False).ids)

    yield from _tokens_of("a 20-step chain, each step needs the one before", _chain(20), count)
    document = (ROOT / "tests" / "workflow" / "document.md").read_text()
    research = document.partition("```yaml\nworkflows:")[2].partition("```")[0]
    yield from _tokens_of(
        "the document's research workflow", "workflows:" + research, count, {"topic": TOPIC}
    )


TOPIC = "how honey bees choose a new place to live"


def _chain(length: int) -> str:
    steps = ["      - {name: s0, inputs: {prompt: 'Write about {{params.topic}}.'}}\n"] + [
        f"      - {{name: s{n}, memory: {{needs: [tool_output(s{n - 1})]}}, inputs:"
        f" {{prompt: 'Go on from this, in other words: {{{{memory.s{n - 1}_output}}}}'}}}}\n"
        for n in range(1, length)
    ]
    return f"workflows:\n  chain:\n    params: [{{topic: {TOPIC}}}]\n    steps:\n{''.join(steps)}"


def _tokens_of(
    what: str, text: str, count: Any, params: dict[str, Any] | None = None
) -> Iterator[Figure]:
    from em.llm import ScriptedClient
    from em.store.sqlite import SqliteStore
    from em.workflows import Workflows
    from em.workflows.slices import about

    # Every answer is of the length of a page of the original's kind: some 400 words.
    page = " ".join(f"Scout {n} dances for a hollow oak, and others follow her." for n in range(40))
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "flow.yaml"
        file.write_text(text)
        with SqliteStore(Path(name) / "em.db") as store:
            flow = Workflows(store, file=file, client=ScriptedClient(lambda _request: page))
            (workflow,) = flow.names()
            run = flow.start_this(workflow, params)
            told = flow.inspect(run.run_id, count).tokens
            guessed = flow.inspect(run.run_id, about).tokens
    yield Figure(
        f"tokens sent, {what}",
        told.sent,
        "with the full context",
        told.full,
        "",
        told.sent / told.full,
        None,
        False,
    )
    yield Figure(
        f"what `em workflow inspect` guesses, {what}",
        guessed.sent,
        "a WordPiece tokenizer (MiniLM's)",
        told.sent,
        "",
        guessed.sent / told.sent,
        None,
        False,
    )
