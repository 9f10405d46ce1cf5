"""What `make test-wheel` runs with the wheel: the plugin of the repository, started by uv alone.

The commands in its files are run as an agent runs them, in a home that has nothing of em. Called
with the plugin and the folder with the wheel.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from em import Memory
from em.clients.hook_service import end_service

HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


def main(plugin: Path, wheels: Path) -> None:
    """Start the MCP server, and let hooks record a session."""
    home = Path(tempfile.mkdtemp(prefix="em-uv-"))
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert uv is not None, "uv is not there"
    environment = {
        **{name: value for name, value in os.environ.items() if name.startswith(("SSL_", "UV_"))},
        "HOME": str(home),
        "TMPDIR": str(home),
        "PATH": f"{Path(uv).parent}:/usr/local/bin:/usr/bin:/bin",
        "UV_FIND_LINKS": str(wheels),
        "CLAUDE_PLUGIN_ROOT": str(plugin),
    }
    server = json.loads((plugin / ".mcp.json").read_text())["mcpServers"]["em"]
    for start in ("first", "second"):
        began = time.monotonic()
        command = [server["command"], *server["args"]]
        ran = subprocess.run(
            command, env=environment, input=f"{json.dumps(HELLO)}\n", text=True,
            capture_output=True, check=False,
        )  # fmt: skip
        assert ran.stdout, ran.stderr
        assert json.loads(ran.stdout)["result"]["serverInfo"]["name"] == "em"
        print(f"the {start} start of the MCP server by uv: {time.monotonic() - began:.1f} s")
    for event in ("SessionStart", "Stop"):
        run_hook(plugin, environment, {"hook_event_name": event, **session(home)})
    address = home / f"em-{os.getuid()}" / "memory.sock"
    try:
        recorded(home / ".local/share/em/memory.db")
    finally:
        end_service(address)
    print("the hooks started the service by uv, and it recorded a session")


def session(home: Path) -> dict[str, str]:
    """Return what a hook says of a session, which is written as a transcript."""
    file = home / "s1.jsonl"
    entry = {
        "type": "user", "uuid": "u1", "sessionId": "s1", "cwd": str(home),
        "timestamp": "2026-01-01T00:00:00Z", "message": {"role": "user", "content": "say hello"},
    }  # fmt: skip
    said = {
        **entry, "type": "assistant", "uuid": "a1", "parentUuid": "u1",
        "message": {"role": "assistant", "content": [{"type": "text", "text": "Hello."}]},
    }  # fmt: skip
    file.write_text("".join(json.dumps(line) + "\n" for line in (entry, said)))
    return {"session_id": "s1", "transcript_path": str(file), "cwd": str(home)}


def run_hook(plugin: Path, environment: dict[str, str], event: dict[str, Any]) -> None:
    """Run the hook of an event, as an agent does: by the shell, with the event as input."""
    hooks = json.loads((plugin / "hooks/hooks.json").read_text())["hooks"]
    ((entry,),) = (one["hooks"] for one in hooks[event["hook_event_name"]])
    began = time.monotonic()
    subprocess.run(
        entry["command"],
        shell=True,
        env=environment,
        input=json.dumps(event),
        text=True,
        check=True,
    )
    print(f"a hook by uv: {time.monotonic() - began:.2f} s")


def recorded(db: Path) -> None:
    """Wait until the session is in the memory."""
    for _ in range(300):
        if db.exists():
            with Memory(db) as memory:
                if [one.trace.mission.goal for one in memory.traces()] == ["say hello"]:
                    return
        time.sleep(0.2)
    raise AssertionError(f"no session in {db} within a minute")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())
