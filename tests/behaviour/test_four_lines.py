"""An agent in Python gets a routine with four added lines, and the routine does another task."""

import json
import os
import subprocess
import sys
from pathlib import Path

from em import Memory
from em.runner.tools import ToolRegistry
from em.testing.model_server import LoopbackModel, calling

ROOT = Path(__file__).parents[2]
AGENT = ROOT / "examples" / "four_lines" / "agent.py"
ADDED = {
    "import anthropic\n": ["import em\n"],
    "client = anthropic.Anthropic()\n": [
        'memory = em.Memory("em.db")\n',
        "em.instrument(client)\n",
    ],
    "def agent(request: str) -> str:\n": ['@memory.record(app="shop")\n'],
}
TASKS = [
    ("Cancel #W1001 because it is too late.", "#W1001", "it is too late"),
    ("Cancel #W2002 because I found another.", "#W2002", "I found another"),
    ("Cancel #W3003 because it was a mistake.", "#W3003", "it was a mistake"),
]


def with_four_lines() -> str:
    """Return the agent with what a user adds; each line goes beside one of the agent's own."""
    lines, added = [], 0
    for line in AGENT.read_text().splitlines(keepends=True):
        new = ADDED.get(line, [])
        lines += [*new, line] if line.startswith("def") else [line, *new]
        added += len(new)
    assert added == 4
    return "".join(lines)


def test_four_added_lines_give_a_routine_that_does_another_task(tmp_path: Path) -> None:
    program, shop = tmp_path / "agent.py", tmp_path / "shop.json"
    program.write_text(with_four_lines())
    orders = {number: {"status": "pending"} for _, number, _ in TASKS}
    orders["#W4004"] = {"status": "pending"}
    orders["#W5005"] = {"status": "sent"}
    shop.write_text(json.dumps(orders))
    with LoopbackModel() as model:
        environment = {
            **os.environ,
            "ANTHROPIC_API_KEY": "k",
            "ANTHROPIC_BASE_URL": model.base_url,
            "SHOP": str(shop),
        }
        for request, order, reason in TASKS:
            model.say(
                calling("get_order", {"order_id": order}),
                calling("cancel_order", {"order_id": order, "reason": reason}),
                "It is cancelled.",
            )
            done = subprocess.run(
                [sys.executable, str(program), request],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                check=True,
            )
            assert done.stdout == "It is cancelled.\n"
        spent = len(model.requests)

        with Memory(tmp_path / "em.db") as memory:
            traces = memory.traces()
            assert [kept.trace.usage.model_calls for kept in traces] == [3, 3, 3]
            assert all(kept.trace.usage.tokens == 3 * 18 for kept in traces)
            routine = memory.compile([kept.id for kept in traces], name="cancel")
            tools = ToolRegistry.load(str(tools_of(tmp_path, shop)))
            request = "Cancel #W4004 because it is broken."
            result = memory.run("cancel", {"request": request}, tools)
            assert result.status == "ok", (result.failure, routine)
            refused = memory.run(
                "cancel", {"request": "Cancel #W5005 because it is broken."}, tools
            )
            assert refused.status == "needs_input"
            assert refused.reason is not None
            assert (refused.reason.recorded, refused.reason.now) == ({"const": "pending"}, "sent")
        after = json.loads(shop.read_text())
        assert after["#W4004"] == {"status": "cancelled", "reason": "it is broken"}
        assert after["#W5005"] == {"status": "sent"}
        assert len(model.requests) == spent  # the routine asked no model


def tools_of(folder: Path, shop: Path) -> Path:
    """Write a file with the functions of the agent alone: the routine needs no client."""
    source = AGENT.read_text()
    begin, end = source.index("def get_order"), source.index("FUNCTIONS:")
    head = f"import json\nfrom pathlib import Path\n\nSHOP = Path({str(shop)!r})\n\n\n"
    path = folder / "shop_tools.py"
    path.write_text(head + source[begin:end])
    return path
