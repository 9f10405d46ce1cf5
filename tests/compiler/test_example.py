"""The example is what the compiler makes of its recording, and it runs with its real tools."""

import json
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from em.compiler.compile_trace import compile_trace_file
from em.compiler.export.script import export_python
from em.runner.engine import run_routine
from em.runner.package import Package
from em.runner.tools import ToolRegistry
from em.runner.validation import validate

EXAMPLE = Path(__file__).parents[2] / "examples" / "csv_report"
ROUTINE = EXAMPLE / "routine"
JANUARY = b"city,cost\nLisbon,840.5\nPorto,120\nLisbon,99.5\n"


@pytest.fixture
def address() -> Iterator[str]:
    class File(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(JANUARY)

        def log_message(self, *_args: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), File) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/january.csv"
        server.shutdown()


def files(folder: Path) -> dict[str, bytes]:
    """Return the files of a package, without its proof, which says when it was made."""
    names = [path for path in folder.iterdir() if path.is_file() and path.name != "proof.json"]
    return {path.name: path.read_bytes() for path in names}


def test_the_recorded_trace_compiles_to_the_committed_package(tmp_path: Path) -> None:
    compile_trace_file(EXAMPLE / "trace.json", tmp_path / "r", name="csv_report")
    shutil.copy(ROUTINE / "udf.py", tmp_path / "r" / "udf.py")  # written by a person
    assert files(tmp_path / "r") == files(ROUTINE), "if this is meant: make golden"
    assert validate(ROUTINE) == []


def test_the_routine_and_its_script_run_with_the_real_tools(address: str, tmp_path: Path) -> None:
    tools = ToolRegistry.load(str(EXAMPLE / "tools.py"))
    recorded = json.loads((ROUTINE / "input.json").read_bytes())
    expected = json.loads((ROUTINE / "expected_output.json").read_bytes())
    data = {**recorded, "url": address, "database": str(tmp_path / "run.db")}
    result = run_routine(ROUTINE, data, tools)
    assert (result.status, result.output) == ("ok", expected)
    with closing(sqlite3.connect(tmp_path / "run.db")) as connection:
        saved = connection.execute("SELECT name, total FROM report ORDER BY name").fetchall()
    assert dict(saved) == expected["report"]
    script: dict[str, Any] = {"__name__": "script"}
    exec(export_python(Package(ROUTINE)), script)
    functions = {name: tools[name].function for name in tools}
    again = {**data, "database": str(tmp_path / "script.db")}
    assert script["run"](again, functions) == expected


def test_the_recorded_examples_of_the_function_hold() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist",
         "-o", "addopts=", "test_udf.py"],
        cwd=ROUTINE, capture_output=True, text=True, check=False,
        env={"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": "."},
    )  # fmt: skip
    assert run.returncode == 0, run.stdout
