"""The demo of `make demo`: an agent solves a task the messy way, em compiles it into a routine.

The agent is scripted, since there is no model here; its tools are real: a CSV file from an HTTP
server on this machine, and a SQLite file.
"""

import http.server
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.error
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import msgspec

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE / "routine")]

import tools  # noqa: E402 - a file beside this one
import udf  # noqa: E402 - a file of the routine beside this one

from em import Memory  # noqa: E402 - after the path above
from em.runner.engine import run_routine  # noqa: E402
from em.runner.package import Package  # noqa: E402
from em.runner.routine import ToolStep, UdfStep  # noqa: E402
from em.traces.recorder import Recorder  # noqa: E402
from em.traces.trace import Trace  # noqa: E402

WORK = Path(".em/demo")
JANUARY = "city,cost\nLisbon,840.5\nPorto,120\nLisbon,99.5\n"
FEBRUARY = "city,cost\nMadrid,300\nPorto,75.25\nMadrid,10\n"


class Files(http.server.BaseHTTPRequestHandler):
    """A small file server."""

    pages = {"/january.csv": JANUARY, "/february.csv": FEBRUARY}  # noqa: RUF012 - never changed

    def do_GET(self) -> None:
        """Send a file, or 404."""
        text = self.pages.get(self.path)
        self.send_response(200 if text else 404)
        self.end_headers()
        self.wfile.write((text or "not found").encode())

    def log_message(self, *_args: Any) -> None:
        """Log nothing."""


def solve(recorder: Recorder, url: str, database: str) -> tuple[Any, int]:
    """Act as the agent: a wrong address, a look around, a wrong column, and then success."""
    fetch_csv = recorder.tool(tools.fetch_csv, effect="read")
    list_tables = recorder.tool(tools.list_tables, effect="read")
    save_report = recorder.tool(tools.save_report, effect="write")
    total_by = recorder.udf(udf.total_by)
    recorder.said("user", f"Total the cost by city in {url} and save it in {database}.")
    with suppress(urllib.error.HTTPError):
        fetch_csv(url=url.replace(".csv", ".txt"))
    text = fetch_csv(url=url)
    list_tables(database=database)
    with suppress(KeyError):
        total_by(text=text, column="town", amount="cost")
    fetch_csv(url=url)
    report = total_by(text=text, column="city", amount="cost")
    saved = save_report(database=database, report=report)
    return {"report": report, **saved}, 8  # each decision above would take one model call


def store(trace: Trace) -> Path:
    """Write the trace to a file, and its events to a log."""
    path = WORK / "trace.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(trace), indent=2))
    with Memory(WORK / "em.db") as memory:
        memory.add_trace(trace)
        assert memory.log.verify().ok
    return path


def em(*args: str) -> None:
    """Print and run a command of em."""
    print(f"\n$ em {' '.join(args)}", flush=True)
    environment = {**os.environ, "EM_DB": str(WORK / "em.db")}
    subprocess.run([sys.executable, "-m", "em", *args], check=True, env=environment)


def rows(database: Path) -> list[Any]:
    """Return the saved report."""
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute("SELECT * FROM report ORDER BY name").fetchall()


def main() -> None:
    """Run the demo."""
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Files)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    base = f"http://127.0.0.1:{server.server_port}"
    recorder = Recorder("Report the cost by city", app="demo-agent")
    start = time.perf_counter()
    output, decisions = solve(recorder, f"{base}/january.csv", str(WORK / "january.db"))
    before = time.perf_counter() - start
    trace = recorder.trace(final_output=output, model_calls=decisions)
    print(f"An agent solved a task in {len(trace.calls)} calls: {rows(WORK / 'january.db')}")
    routine = WORK / "csv_report"
    em("compile", str(store(trace)), "-o", str(routine), "--name", "csv_report")
    shutil.copy(HERE / "routine" / "udf.py", routine / "udf.py")
    recorded = msgspec.json.decode((routine / "input.json").read_bytes())
    new = {"url": f"{base}/february.csv", "database": str(WORK / "february.db")}
    (WORK / "input.json").write_bytes(msgspec.json.encode({**recorded, **new}))
    em("run", str(routine), "--input", str(WORK / "input.json"), "--tools", str(HERE / "tools.py"))
    # Into a new database, as recorded: into one with a report in it the routine would not write.
    again = {**recorded, **new, "database": str(WORK / "again.db")}
    start = time.perf_counter()
    assert run_routine(routine, again, tools.registry).status == "ok"
    after = time.perf_counter() - start
    steps = Package(routine).routine.steps
    made = sum(isinstance(step, ToolStep | UdfStep) for step in steps)
    print(f"\n{len(trace.calls)} calls became {made}: what failed or repeated a call is left out.")
    print(f"On new input, without a model: {rows(WORK / 'february.db')}\n")
    print(f"{'':<14}{'the agent':>12}{'the routine':>14}")
    print(f"{'calls':<14}{len(trace.calls):>12}{made:>14}")
    print(f"{'model calls':<14}{decisions:>12}{0:>14}")
    print(f"{'seconds':<14}{before:>12.3f}{after:>14.3f}")
    print("The agent here is a script: a model's own time comes on top of its seconds.")
    print(f"\nLook at {routine / 'routine.yaml'}; the log is {(WORK / 'em.db').resolve()}")
    command = os.path.relpath(Path(sys.executable).with_name("em"))
    print(f"See it in a browser: {command} --db {WORK / 'em.db'} serve --open")
    print("The page is http://127.0.0.1:8765/ui then.")
    server.shutdown()


if __name__ == "__main__":
    main()
