"""What `make demo` runs: a recorded agent run goes into a new log, is shown, and is proved."""

import json
import subprocess
import sys
from pathlib import Path

from em import Draft, Memory

HERE = Path(__file__).parent
DB = Path(".em/demo.db")
STREAM = "run/demo"


def recorded_run() -> list[Draft]:
    """The recorded run as events: its start, what happened, its end."""
    trace = json.loads((HERE / "recorded_run.json").read_text())
    mission = trace["mission"]
    started = {"goal": mission["goal"], "app": trace["app"], "input": mission["input_summary"]}
    ended = {"outcome": trace["outcome"], "output": trace["final_output"]}
    happened = [
        (event["type"], {name: value for name, value in event.items() if name != "type"})
        for event in trace["events"]
    ]
    return [
        Draft(stream=STREAM, kind=kind, body=body, subject="ana")
        for kind, body in [("trace_started", started), *happened, ("trace_ended", ended)]
    ]


def em(*args: str) -> None:
    """Run the command as a user would, and show what was typed."""
    print(f"\n$ em {' '.join(args)}", flush=True)
    subprocess.run([sys.executable, "-m", "em", *args, "--db", str(DB)], check=True)


def main() -> None:
    """The demo."""
    for old in DB.parent.glob(DB.name + "*"):
        old.unlink()
    with Memory(DB) as memory:
        events = memory.log.append_many(recorded_run())
    print(f"An agent's run of {len(events)} events was appended to a new log.")
    em("log", "show")
    em("log", "verify")
    print(
        "\nThe API key that the agent passed to `track` never reached the disk: it was redacted."
        f"\nThe log is {DB.resolve()}; look around with `.venv/bin/em --db {DB} log show`."
    )


if __name__ == "__main__":
    main()
