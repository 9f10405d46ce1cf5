"""The quick start of the first document, word for word, in a folder with a trace and an input."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from em_command import em

CSV = "name,hours\nAlice,40\nBob,35\n"
ROWS = [{"name": "Alice", "hours": "40"}, {"name": "Bob", "hours": "35"}]


class Files(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(CSV.replace("Bob", "Cy").encode())

    def log_message(self, *_args: Any) -> None:
        pass


@pytest.fixture
def address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Files)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def folder(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the trace of an agent that fetched a CSV file and parsed it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EM_TRUSTED_FOLDERS")
    url = "https://example.com/january.csv"
    trace = {
        "version": "1",
        "mission": {"goal": "Fetch a CSV file and parse it", "input_summary": {"url": url}},
        "events": [
            {"type": "tool_call", "tool": "fetch_csv", "args": {"url": url}, "result": CSV},
            {"type": "tool_call", "tool": "parse_csv", "args": {"text": CSV}, "result": ROWS},
        ],
        "final_output": ROWS,
        "outcome": "success",
    }
    (tmp_path / "trace.json").write_text(json.dumps(trace))
    (tmp_path / "input.json").write_text(json.dumps({"url": f"http://{address}/data.csv"}))
    return tmp_path


def trusted(folder: Path, text: str) -> None:
    (folder / "em.yaml").write_text(text)
    assert em("trust", "--folder", ".", "--yes").code == 0


def test_the_commands_of_the_quick_start(folder: Path, address: str) -> None:
    trusted(folder, f"allow: {{hosts: ['{address}']}}\n")
    assert em("compile", "trace.json", "-o", "./my_routine").code == 0
    assert em("routine", "validate", "./my_routine").code == 0
    ran = em("run", "./my_routine", "--input", "input.json", "--json")
    done = json.loads(ran.out)
    assert done["status"] == "ok", done
    assert [row["name"] for row in done["output"]] == ["Alice", "Cy"]


def test_the_python_of_the_quick_start(folder: Path, address: str) -> None:
    trusted(folder, f"allow: {{hosts: ['{address}']}}\n")
    names: dict[str, Any] = {}
    code = """
from em.compiler.compile_trace import compile_trace_file
from em.runner.engine import run_routine

# Compile a trace into a routine
compile_trace_file("trace.json", "./my_routine")

# Run the routine — no LLM needed
result = run_routine("./my_routine", input_data={"url": "https://example.com/data.csv"})
"""
    exec(code.replace("https://example.com", f"http://{address}"), names)
    assert names["result"].status == "ok"
    assert [row["name"] for row in names["result"].output] == ["Alice", "Cy"]


def test_tools_of_em_yaml_count_in_a_trusted_folder(folder: Path) -> None:
    (folder / "mine.py").write_text("def fetch_csv(url):\n    return 'name,hours\\nDi,1\\n'\n")
    (folder / "em.yaml").write_text("tools: mine.py\n")
    assert em("compile", "trace.json", "-o", "./my_routine").code == 0
    before = em("run", "./my_routine", "--input", "input.json", "--json")
    assert json.loads(before.out)["status"] != "ok"  # a reader, which may not go there
    assert em("trust", "--folder", ".", "--yes").code == 0
    done = json.loads(em("run", "./my_routine", "--input", "input.json", "--json").out)
    assert (done["status"], done["output"]) == ("ok", [{"name": "Di", "hours": "1"}])
    # Other code in the file is not the code that was trusted.
    (folder / "mine.py").write_text("def fetch_csv(url):\n    return 'name,hours\\nEvil,1\\n'\n")
    after = em("run", "./my_routine", "--input", "input.json", "--json")
    assert "Evil" not in after.out


def test_tools_that_came_with_a_routine_do_not_count(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert em("compile", "trace.json", "-o", "./my_routine").code == 0
    inside = folder / "my_routine"
    (inside / "mine.py").write_text("def fetch_csv(url):\n    return 'name,hours\\nEvil,1\\n'\n")
    monkeypatch.chdir(inside)
    trusted(inside, "tools: mine.py\n")
    ran = em("run", ".", "--input", "../input.json", "--json")
    assert "Evil" not in ran.out
