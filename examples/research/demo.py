"""A workflow whose steps get just what they name: run it, look at it, answer its gate."""

import os
import tempfile
from pathlib import Path

from em import Memory
from em.llm import ScriptedClient


def count_words(texts: list[str]) -> int:
    """How much was found."""
    return sum(len(text.split()) for text in texts)


def main() -> None:
    """Run to the gate, go on in another memory object, and show what was saved."""
    file = Path(__file__).with_name("em.yaml")
    client = ScriptedClient(lambda request: f"{request.prompt.split('?')[0].strip()} ... answered.")
    with tempfile.TemporaryDirectory() as folder:
        database = os.path.join(folder, "em.db")
        with Memory(database) as memory:
            flow = memory.workflows(file, {"count_words": count_words}, client=client)
            waits = flow.start("research_and_analyze", {"topic": "honey bees"})
            assert waits.pending_prompt is not None
            print(f"{waits.status}: {waits.pending_prompt.message}")
        with Memory(database) as memory:
            flow = memory.workflows(file, {"count_words": count_words}, client=client)
            done = flow.resume(waits.run_id, answers={"report": {"approve": True}})
            view = flow.inspect(done.run_id)
            for step in view.steps:
                print(f"{step.name}: {step.status}, given {sorted(step.memory)}")
            print(f"tokens: about {view.tokens.sent}, full context {view.tokens.full}")


if __name__ == "__main__":
    main()
