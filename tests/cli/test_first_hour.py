"""The first hour: from a folder of Claude Code's transcripts to a routine, in three commands."""

import re
import shlex
from pathlib import Path

import pytest
from bench.series.rotation import SERIES, run, sessions
from tests.cli.em_command import em

from em import Memory

BUMPS = SERIES[0]


def test_three_commands_make_a_routine_of_transcripts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    *seen, unseen = sessions(BUMPS)
    for number, one in enumerate(seen):
        folder = tmp_path / ".claude" / "projects" / f"-home-ana-{number}"
        folder.mkdir(parents=True)
        (folder / f"{number}.jsonl").write_text(one.text)

    imported = em("import", ".claude/projects")
    assert (imported.code, "em routine suggest" in imported.out) == (0, True), (
        "it says what is next"
    )
    suggested = em("routine", "suggest")
    typed = re.search(r"em (compile .* --keep)", suggested.out)
    assert typed is not None, "and so does this"
    kept = em(*shlex.split(typed[1]))
    assert kept.code == 0, kept.err

    (routine,) = em("routine", "list", "--json").json["routines"]
    task = BUMPS.tasks[-1]
    with Memory() as memory:
        status, why, files = run(memory, routine["ref"], task, task.day)
    assert status == "ok", why
    assert files == unseen.after, "a task that it has not seen, as the agent did it"
