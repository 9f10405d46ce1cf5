"""A folder that says so is not recorded, by whichever way its sessions come."""

import json
from pathlib import Path

import pytest

from em import Memory
from em.traces.transcripts import import_each


def session(folder: Path, name: str) -> Path:
    path = Path("sessions") / f"{name}.jsonl"
    path.parent.mkdir(exist_ok=True)
    common = {"sessionId": name, "cwd": str(folder), "timestamp": "2026-05-01T10:00:00Z"}
    call = {"type": "tool_use", "id": "a", "name": "Bash", "input": {"command": "cat private"}}
    lines = [
        {"type": "user", "uuid": "1", "message": {"role": "user", "content": "look"}, **common},
        {
            "type": "assistant",
            "uuid": "2",
            "message": {"role": "assistant", "content": [call]},
            **common,
        },
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


@pytest.mark.parametrize("sign", [".emignore", "em.yaml"])
def test_imports_leave_out_sessions_of_folders_that_say_so(tmp_path: Path, sign: str) -> None:
    private, other = tmp_path / "private", tmp_path / "other"
    for folder in (private / "sub", other):
        folder.mkdir(parents=True)
    (private / sign).write_text("record: false\n" if sign == "em.yaml" else "")
    session(private / "sub", "secret-one")
    session(other, "public-one")
    with Memory("em.db") as memory:
        read = [*import_each(memory.store, ["sessions"])]
        assert [kept.trace.app["session"] for kept in memory.traces()] == ["public-one"]
        assert sum(one.left_out for one in read) == 1
        stored = str([event.body for event in memory.log.read()])
        assert stored.count("cat private") == 1  # of the other folder's session
