"""A workflow of ten steps: a read and an effect in turns, each with what the last one left."""

from pathlib import Path

STEPS = 10
OUTPUT = "go0123456789"


def write_flow(folder: Path, effect: str, head: str = "") -> None:
    steps = []
    for n in range(STEPS):
        tool = "look" if n % 2 == 0 else effect
        before = "params.x" if n == 0 else f"memory.s{n - 1}_output"
        needs = "[]" if n == 0 else f"[tool_output(s{n - 1})]"
        key = f", idempotency_key: '{{{{run_id}}}}/{n}'" if tool == "keyed" else ""
        steps.append(
            f"      - {{name: s{n}, tool: {tool}, memory: {{needs: {needs}}},"
            f" inputs: {{step: {n}, seen: '{{{{{before}}}}}'}}{key}}}\n"
        )
    (folder / "flow.yaml").write_text(
        f"workflows:\n  ten:\n{head}    params: [x]\n    steps:\n{''.join(steps)}"
    )


EVERY = [f"write {n}" for n in range(1, STEPS, 2)]
