"""The examples do what they tell."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def run(*path: str) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES.joinpath(*path))],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_shop_replays_hands_over_and_heals() -> None:
    told = [line.strip() for line in run("shop", "demo.py").splitlines()]
    outcomes = [line for line in told if line.startswith(("hit:", "miss:", "handed_over:"))]
    assert outcomes == [
        "miss: order W-0001 for Ana Lima: LMP-1, 19.00",
        "hit: order W-0002 for Bo Berg: LMP-1, 19.00",
        "handed_over: order W-0003 for Cy Cole: LMP-1, 21.00",
        "hit: order W-0004 for Di Dorn: LMP-1, 21.00",
        "handed_over: order W-0005 for Ed East: LMP-2, 24.00",
        "hit: order W-0006 for Flo Fisk: LMP-2, 24.00",
        "hit: order W-0007 for Gus Gale: LMP-1, 19.00",
    ]
    assert any(line.startswith('agent: 1. Client.find(name="lamp") returned') for line in told)
    assert told[-1].endswith("the agent thought 3 times; 7 orders, 7 carts")


@pytest.mark.skipif(
    not importlib.util.find_spec("playwright") or not shutil.which("chromium"),
    reason="an optional example: it needs playwright and Chromium",
)
def test_the_browser_example_replays_and_hands_over_where_the_page_changed() -> None:
    told = run("browser", "demo.py").splitlines()
    assert [line for line in told if not line.startswith("  ")] == [
        "miss: Desk 101 is yours, Ana Lima, on Monday",
        "hit: Desk 102 is yours, Bo Berg, on Tuesday",
        "The page changes:",
        "handed_over: Desk 103 is yours, Cy Cole, on Friday",
        "hit: Desk 104 is yours, Di Dorn, on Sunday",
        "the agent was asked 2 times",
    ]
    assert any("the pre-check of step 2 (Desk.fill) did not pass" in line for line in told)
