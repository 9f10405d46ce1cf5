"""A call into the sandbox, by back end: from nothing, and in a session. Printed, without a bar."""

import subprocess
import sys
from collections.abc import Iterator

from bench.figure import Figure, in_turns, seconds, time_figure
from em.runner.sandbox.sandbox import backends

CODE = "def double(x):\n    return x * 2\n"
CALLS = 1_000


def calls() -> Iterator[Figure]:
    space: dict[str, object] = {}
    exec(CODE, space)
    double = space["double"]
    nothing = [sys.executable, "-c", "pass"]

    def bare_process() -> float:
        return seconds(lambda: subprocess.run(nothing, check=True))

    def bare_calls() -> float:
        return seconds(lambda: [double(n) for n in range(CALLS)])

    for kind in backends():
        if reason := kind.missing():
            print(f"{kind.name}: not here ({reason})")
            continue
        sandbox = kind()

        def once(sandbox=sandbox) -> float:
            return seconds(lambda: sandbox.run(CODE, "double", {"x": 21}))

        yield time_figure(
            f"{kind.name}: one call from nothing",
            "python -c pass",
            in_turns(once, bare_process, rounds=25),
            None,
        )
        with sandbox.open(CODE) as session:

            def many(session=session) -> float:
                return seconds(lambda: [session.call("double", {"x": n}) for n in range(CALLS)])

            yield time_figure(
                f"{kind.name}: {CALLS:,} calls in a session",
                "as many calls of the bare function",
                in_turns(many, bare_calls, rounds=5),
                None,
            )
