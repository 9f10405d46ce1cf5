"""`em`, `em forget` and `em doctor` from a user's chair."""

import json
import os
from pathlib import Path

import pytest
from em_command import em

import em as package
from em import Memory


def test_version_and_help_read_well() -> None:
    assert em("--version").out == f"em {package.__version__}\n"
    for args in ([], ["--help"], ["-h"]):
        ran = em(*args)
        text = ran.out + ran.err
        for word in ("log", "forget", "doctor", "--db", "--json", "EM_DB"):
            assert word in text
    for args in (["log", "--help"], ["log", "append", "-h"], ["forget", "-h"], ["doctor", "-h"]):
        ran = em(*args)
        assert ran.code == 0
        assert "Usage: em" in ran.out


def test_a_command_under_another_name_is_named() -> None:
    assert "Did you mean 'lessons'?" in em("heuristics").err
    assert "Claude Code, Codex or opencode" in em("--help").out


def test_forget_lists_ids_and_counts_in_a_dry_run_and_then_the_same() -> None:
    with Memory() as memory:
        first = memory.observe("ana", "I live in Porto.")
        made = memory.log.append("notes", "note", {"text": "Porto!", "from_events": [first]})
        kept = memory.observe("bob", "I live in Faro.")
    dry = em("forget", "--subject", "ana", "--dry-run")
    assert dry.code == 0
    assert dry.out.splitlines() == [
        "would be erased: 2 events, 1 passage",
        "events, observation: 1",
        f"  {first}",
        "events, note: 1",
        f"  {made.id}",
        "passages, observation: 1",
        *dry.out.splitlines()[-1:],
    ]
    with Memory() as memory:
        assert not any(event.erased for event in memory.log.read())
    told = json.loads(em("forget", "--subject", "ana", "--yes", "--json").out)
    assert told["gone"]["events"] == {"observation": [first], "note": [made.id]}
    with Memory() as memory:
        assert [event.id for event in memory.log.read() if event.erased] == [first, made.id]
        assert not memory.log.get(kept).erased


def test_a_run_is_forgotten_by_its_id(tmp_path: Path) -> None:
    (tmp_path / "flow.yaml").write_text(
        "workflows:\n  w:\n    params: [x]\n    steps:\n      - {name: a, tool: echo, inputs: "
        "{text: '{{params.x}}'}}\n"
    )
    with Memory() as memory:
        tools = {"echo": lambda text: text}
        run = memory.workflow("w", {"x": "zebra"}, file="flow.yaml", tools=tools)
        assert run.output == "zebra"
    assert em("forget", "--run", run.run_id, "--yes").code == 0
    assert em("forget", "--run", run.run_id, "--yes").code == 1
    with Memory() as memory:
        assert "zebra" not in repr([event.body for event in memory.log.read()])


def test_forget_asks_first(tmp_path: Path) -> None:
    with Memory() as memory:
        event_id = memory.observe("ana", "private")
        memory.observe("ana", "more")
    refused = em("forget", "--subject", "ana", stdin="n\n")
    assert refused.code == 1
    assert "2 events about 'ana'" in refused.err
    assert "nothing was erased" in refused.err
    for more in ([], ["--json"]):
        unanswered = em("forget", "--subject", "ana", *more)
        assert unanswered.code == 2
        assert "--yes" in unanswered.err
    assert "private" in em("log", "show").out
    one = em("forget", "--event", event_id, "--reason", "asked", stdin="y\n")
    assert one.code == 0
    assert "erased 1 event, 1 passage" in one.out
    rest = em("forget", "--subject", "ana", "--yes", "--json")
    assert len(rest.json["events"]) == 1
    assert rest.json["scrubbed"] is True
    assert "nothing: it was erased before" in em("forget", "--event", event_id, "--yes").out
    shown = em("log", "show").out
    assert "(erased)" in shown
    assert "asked" in shown
    assert "2 of them erased on request" in em("log", "verify").out


def test_forget_says_when_the_disk_could_not_be_scrubbed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sqlite3

    monkeypatch.setenv("EM_BUSY_TIMEOUT", "0.2")
    with Memory() as memory:
        event_id = memory.observe("ana", "private")
        reader = sqlite3.connect(".em/em.db")
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM events").fetchall()
        ran = em("forget", "--event", event_id, "--yes")
        assert ran.code == 1
        assert "erased, not yet scrubbed" in ran.err
        assert "em forget --finish" in ran.err
        assert em("doctor").code == 1
        assert em("forget", "--finish").code == 1
        reader.close()
        assert "scrubbed" in em("forget", "--finish").out
        assert em("doctor").code == 0


def test_doctor_tells_what_is_there_without_showing_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-very-secret")
    before = em("doctor")
    assert before.code == 0
    assert "not made yet" in before.out
    assert not os.path.exists(".em")
    Memory().close()
    for args in (["doctor"], ["doctor", "--deep"], ["doctor", "--json"]):
        ran = em(*args)
        assert ran.code == 0
        assert "very-secret" not in ran.out + ran.err
    report = em("doctor", "--json").json
    assert list(report["sandboxes"]) == ["monty", "bubblewrap", "landlock"]
    assert "works" in report["sandboxes"].values()
    assert report["ok"] is True
    assert report["keys"]["ANTHROPIC_API_KEY"] is True
    assert report["keys"]["OPENAI_API_KEY"] is False
    assert report["extras"]["postgres"] is True
    assert report["versions"]["em"] == package.__version__
    assert report["database"]["journal_mode"] == "wal"


def test_doctor_reports_a_database_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_text("no database " * 100)
    ran = em("doctor", "--db", "x.db", "--json")
    assert ran.code == 1
    assert ran.json["problems"]
    (tmp_path / "em.yaml").write_text("dbb: x.db")
    broken = em("doctor")
    assert broken.code in (1, 2)
    assert "did you mean 'db'" in broken.out + broken.err


def test_errors_are_json_where_json_was_asked_for() -> None:
    ran = em("log", "show", "--json")
    assert ran.code == 1
    error = json.loads(ran.err)["error"]
    assert error["code"] == "not_found"
    assert error["fix"]


def test_postgres_behind_the_same_command(new_database: object) -> None:
    address = new_database()  # type: ignore[operator]
    body = '{"role": "user", "text": "hello"}'
    args = ["log", "append", "--stream", "s", "--kind", "message", body]
    assert em(*args, "--db", address).code == 0
    assert "hello" in em("log", "show", "--db", address).out
    assert em("log", "verify", "--db", address).code == 0
    assert (
        em("doctor", "--db", address, "--json").json["database"]["backend"].startswith("postgres")
    )
