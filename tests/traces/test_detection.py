"""The format of a file is found by its content, and no file stops a folder."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sessions import lines, order_session

from em import Memory
from em.cli.root import run
from em.errors import NoTranscript
from em.traces.transcripts import read_traces
from strategies import examples

SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": ["string", "null"],
    "messages": {"type": ["object", "null"]},
}


def test_a_json_schema_does_not_stop_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a_schema.json").write_text(json.dumps(SCHEMA))
    (tmp_path / "session.jsonl").write_bytes(lines(*order_session("s1", "W1")))
    with Memory(":memory:") as memory:
        read = {Path(one.path).name: one for one in memory.import_files(tmp_path)}
        assert read["a_schema.json"].skipped == "the file is in no known format"
        assert (read["session.jsonl"].skipped, read["session.jsonl"].calls) == ("", 3)


WORDS = (
    "type payload message messages content role id kind source history trajectory action "
    "observation args events steps task spans data resourceSpans traj task_id simulations info "
    "parts session version item output input tool_calls function name arguments run_type "
    "trace_id span_data object sessionID part"
).split()
LEAVES: Any = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6)
    | st.sampled_from([*WORDS, "user", "assistant", "tool", "session_meta", "response_item",
                       "event_msg", "item_completed", "function_call", "tool_use"])
)  # fmt: skip
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=4), inner, max_size=6)
    ),
    max_leaves=25,
)
FILES = st.one_of(
    st.binary(max_size=200),
    VALUES.map(lambda value: json.dumps(value).encode()),
    st.lists(VALUES, max_size=6).map(lambda values: lines(*values)),
    st.lists(
        st.binary(max_size=30) | VALUES.map(lambda value: json.dumps(value).encode()), max_size=6
    ).map(b"\n".join),
)


@given(FILES)
@settings(max_examples=examples(400), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_a_file_holds_a_folder_is_imported_to_its_end(data: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder, Memory(":memory:") as memory:
        Path(folder, "a.jsonl").write_bytes(data)
        Path(folder, "b.jsonl").write_bytes(lines(*order_session("s1", "W1")))
        read = {Path(one.path).name: one for one in memory.import_files(folder)}
        assert read["b.jsonl"].calls == 3
        strange = read["a.jsonl"]
        assert bool(strange.skipped) != bool(strange.format)
        assert memory.log.verify().ok


def test_a_folder_names_every_file_that_it_did_not_understand_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "sessions"
    folder.mkdir()
    (folder / "good.jsonl").write_bytes(lines(*order_session("s1", "W1")))
    (folder / "schema.json").write_text(json.dumps(SCHEMA))
    (folder / "empty.jsonl").write_bytes(b"")
    (folder / "prose.json").write_text("Dear reader")
    (folder / "gone.jsonl").symlink_to(folder / "nowhere")
    (folder / "old.jsonl.gz").write_bytes(gzip.compress(b"{}"))
    (folder / "cold.jsonl.zst").write_bytes(b"\x28\xb5\x2f\xfd rest")
    (folder / "notes.md").write_text("not JSON, and not named like a transcript")
    assert run(["--db", str(tmp_path / "em.db"), "import", str(folder)]) == 0
    printed = capsys.readouterr()
    said = printed.out + printed.err
    for name, reason in (
        ("schema.json", "no known format"),
        ("empty.jsonl", "empty"),
        ("prose.json", "expected JSON"),
        ("gone.jsonl", "can't be read"),
        ("old.jsonl.gz", "gzip"),
        ("cold.jsonl.zst", "Zstandard"),
    ):
        (line,) = [line for line in said.splitlines() if f"{name}: not imported" in line]
        assert reason in line
    assert "notes.md" not in said
    assert "6 not imported" in said


def test_a_transcript_is_found_under_any_name(tmp_path: Path) -> None:
    """Detection is by content: exports are written to files of any name."""
    (tmp_path / "session").write_bytes(lines(*order_session("s1", "W1")))
    (tmp_path / "export.txt").write_bytes(b"\n " + lines(*order_session("s2", "W2")))
    (tmp_path / "config").write_text("[core]\n\tbare = true\n")
    (tmp_path / "words").write_text('["not", "a", "transcript"]')
    with Memory(":memory:") as memory:
        read = {Path(one.path).name: one for one in memory.import_files(tmp_path)}
        assert {name: one.calls for name, one in read.items()} == {
            "session": 3, "export.txt": 3, "words": 0,
        }  # fmt: skip
        assert read["words"].skipped


def test_detection_does_not_raise_what_an_importer_raises() -> None:
    with pytest.raises(NoTranscript):
        read_traces(json.dumps(SCHEMA).encode())


PACKAGE = """
from em.traces.formats import Importer, Reader

class Lines(Reader):
    def read(self, value):
        self.intake.trace(value["mine"], "mine").call("look", {}, "1")

IMPORTER = Importer(name="mine", title="Mine", fits=lambda value: "mine" in value, reader=Lines)
AGAIN = Importer(name="codex", title="Again", fits=IMPORTER.fits, reader=Lines)
"""


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("mine", "mine:IMPORTER", ""),
        ("mine", "nowhere:IMPORTER", "nowhere"),
        ("mine", "mine:Lines", "Importer"),
        ("again", "mine:AGAIN", "codex"),
    ],
)
def test_a_package_adds_a_format_by_an_entry_point(
    name: str, value: str, problem: str, tmp_path: Path
) -> None:
    about = tmp_path / "mine-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: mine-package\nVersion: 1\n")
    (about / "entry_points.txt").write_text(f"[em.importers]\n{name} = {value}\n")
    (tmp_path / "mine.py").write_text(PACKAGE)
    (tmp_path / "lines.jsonl").write_text('{"mine": "s1"}\n')
    command = [sys.executable, "-m", "em", "import", "lines.jsonl", "--db", "em.db", "--json"]
    path = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        command, cwd=tmp_path, env=path, capture_output=True, text=True, check=False
    )
    if problem:
        assert done.returncode == 2
        assert problem in done.stderr
        assert "mine-package" in done.stderr
    else:
        assert json.loads(done.stdout)["files"][0]["format"] == "mine"
