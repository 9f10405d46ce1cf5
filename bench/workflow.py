"""Workflows: what a step costs, and what naming the context saves."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.figure import Figure
from bench.model import model_files
from bench.scale import journal

ROOT = Path(__file__).parent.parent


def overhead() -> Iterator[Figure]:
    """A step of a 50-step workflow, its needs resolved and its result in the journal.

    Beside one insert that is committed, with the same durability.
    """
    for synchronous in ("normal", "full"):
        yield journal.workflow_step(synchronous)


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
