"""What agents write comes in as they write it, once, whoever is started again when."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from sessions import lines, order_session
from tests.children import LIMIT

from em import Memory
from em.traces.watch import Watch


def trace_events(memory: Memory) -> list[str]:
    return [e.id for e in memory.log.read() if e.stream.startswith("trace/")]


def test_a_session_comes_in_line_by_line_and_the_same_as_at_once(tmp_path: Path) -> None:
    folder = tmp_path / "projects" / "mine"
    folder.mkdir(parents=True)
    session = order_session("s1", "W1")
    path = folder / "s1.jsonl"
    with Memory(tmp_path / "em.db") as memory, Memory(tmp_path / "other.db") as other:
        watch = Watch(memory.store, tmp_path / "projects")
        for number in range(1, len(session) + 1):
            # The next line is under way: half of it is there.
            half = json.dumps(session[number]).encode()[:40] if number < len(session) else b""
            path.write_bytes(lines(*session[:number]) + half)
            list(watch.look())
            assert len(memory.traces()) == 1
        watch.finish()
        other.import_files(path)
        assert [kept.trace for kept in memory.traces()] == [kept.trace for kept in other.traces()]


def test_a_watch_that_is_started_again_repeats_nothing(tmp_path: Path) -> None:
    session = order_session("s1", "W1")
    path = tmp_path / "s1.jsonl"
    path.write_bytes(lines(*session[:4]))
    with Memory(tmp_path / "em.db") as memory:
        list(Watch(memory.store, tmp_path).look())  # ends without a word, as if it were killed
        path.write_bytes(lines(*session))
        again = Watch(memory.store, tmp_path)
        assert [read.path for read in again.look()] == [str(path)]
        again.finish()
        before = trace_events(memory)
        assert len(before) == len(set(before))
        third = Watch(memory.store, tmp_path)
        assert list(third.look()) == []
        third.finish()
        assert trace_events(memory) == before
        assert len(memory.traces()[0].trace.calls) == 3


def test_a_file_that_was_quiet_is_complete_and_may_go_on(tmp_path: Path) -> None:
    session = order_session("s1", "W1")
    path = tmp_path / "s1.jsonl"
    path.write_bytes(lines(*session[:4]))
    with Memory(tmp_path / "em.db") as memory:
        watch = Watch(memory.store, tmp_path, settled=0.0)
        list(watch.look())
        list(watch.look())
        assert [event.kind for event in memory.log.read(kinds="transcript_read")]
        path.write_bytes(lines(*session))
        list(watch.look())
        watch.finish()
        (kept,) = memory.traces()
        assert (len(kept.trace.calls), kept.trace.calls[1].error) == (3, "there is no such order")


def test_documents_and_foreign_files_are_looked_at_too(tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text('{"name": "x"}')
    (tmp_path / "empty.jsonl").write_text("")
    chat = {"messages": [{"role": "user", "content": "hello"}]}
    (tmp_path / "chat.json").write_text(json.dumps(chat))
    with Memory(tmp_path / "em.db") as memory:
        watch = Watch(memory.store, tmp_path)
        assert [Path(read.path).name for read in watch.look()] == ["chat.json"]
        (tmp_path / "empty.jsonl").write_bytes(lines(*order_session("s1", "W1")))
        assert [Path(read.path).name for read in watch.look()] == ["empty.jsonl"]
        watch.finish()


def test_the_command_watches_until_it_is_stopped(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    session = order_session("s1", "W1")
    path = tmp_path / "in" / "s1.jsonl"
    path.write_bytes(lines(*session[:2]))
    command = [sys.executable, "-m", "em", "import", "--watch", "in"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ}
    )
    assert process.stdout is not None
    assert "claude-code" in process.stdout.readline()
    path.write_bytes(lines(*session))
    assert "claude-code" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "interrupted" in err
    with Memory(tmp_path / ".em" / "em.db") as memory:
        assert len(memory.traces()[0].trace.calls) == 3
        assert [event.kind for event in memory.log.read(kinds="trace_ended")]
