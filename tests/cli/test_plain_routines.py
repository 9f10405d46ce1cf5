"""A learnt routine at the command line: its code, its checks, and striking one of them."""

import json
import re
import shlex
from getpass import getuser
from pathlib import Path

import pytest
from em_command import em

from cancelled_orders import recording
from em import Memory


@pytest.fixture(autouse=True)
def traces() -> list[str]:
    with Memory(".em/em.db") as memory:
        return [memory.add_trace(recording(number)) for number in range(1, 5)]


@pytest.fixture
def kept(traces: list[str]) -> None:
    assert em("compile", *traces, "--name", "cancel", "--keep").code == 0


def test_compiling_shows_code_inputs_constants_and_what_is_open(traces: list[str]) -> None:
    done = em("compile", *traces, "--name", "cancel", "-o", "cancel")
    assert done.code == 0, done.err
    text = Path("cancel/routine.yaml").read_text()
    assert done.out.startswith(text)
    assert re.search(r"order_id +a text that matches \^W\[0-9\]\+\$ +required", done.out)
    assert "cancel_order.notify  true" in done.out
    assert "learnt from 4 recordings, in cancel" in done.out
    assert "left out: right in 4 of 4, handed over in 0, wrong in 0" in done.out
    assert "order.status  " in done.out
    assert "open: is this always so: cancel_order.notify? 4 recordings showed it" in done.err


def test_compiling_tells_the_same_as_json(traces: list[str]) -> None:
    done = em("compile", *traces, "--name", "cancel", "--keep", "--json").json
    assert (done["routine"], done["kept"]) == ("cancel@1", "cancel@1")
    assert done["constants"] == [{"place": "cancel_order.notify", "value": True}]
    assert done["open"] == ["cancel_order.notify"]
    assert done["trials"]["right"] == 4
    assert done["proved"] is True
    assert "order.status" in [one["id"] for one in done["checks"]]


@pytest.mark.usefixtures("kept")
def test_showing_it() -> None:
    shown = em("routine", "show", "cancel")
    head = 'version: "1"\nname: cancel\ndescription: Cancel an order\n'
    assert shown.out.startswith(f"{head}checks: hand_over\n")
    assert re.search(r'order.status +4/4 +order.status is "pending"', shown.out)
    assert 'done.status is "cancelled" (after the write; else the run fails)' in shown.out
    assert "cancel_order.notify  true" in shown.out
    assert "left out: right in 4 of 4" in shown.out
    as_json = em("routine", "show", "cancel", "--json").json
    (check,) = [one for one in as_json["checks"] if one["id"] == "order.status"]
    assert (check["text"], check["held"]) == ('order.status is "pending"', "4/4")
    assert as_json["inputs"][0]["name"] == "email"


def test_the_list_has_the_proof_of_each_routine(traces: list[str]) -> None:
    em("compile", *traces, "--name", "several", "--keep")
    em("compile", traces[0], "--name", "single", "--keep")
    rows = em("routine", "list", "--json").json["routines"]
    proofs = {row["ref"]: row["tried"] for row in rows}
    assert proofs["several@1"].startswith("right in 4 of 4")
    assert "right in 1 of 1" in proofs["single@1"]


@pytest.mark.usefixtures("kept")
def test_showing_it_as_a_function() -> None:
    shown = em("routine", "show", "cancel", "--python").out
    assert shown.startswith("def cancel(email: str, order_id: str, reason: str, *, tools: Any)")
    compile(shown, "cancel", "exec")
    assert em("routine", "show", "cancel", "--python", "--json").json["python"] == shown


def test_only_a_plain_routine_is_shown_as_a_function() -> None:
    Path("old").mkdir()
    Path("old/routine.yaml").write_text("name: old\nsteps: [{id: a, type: return, value: 1}]\n")
    shown = em("routine", "show", "old", "--python")
    assert shown.code == 2
    assert "em routine export --to python" in shown.err


@pytest.mark.usefixtures("kept")
def test_striking_a_check() -> None:
    done = em("routine", "strike", "cancel", "order.channel", "--reason", "any")
    assert done.out == (
        'struck: order.channel is "web"\nstored as cancel@2; the version before is cancel@1\n'
    )
    shown = em("routine", "show", "cancel").out
    assert 'struck: order.channel is "web"' in shown
    assert 'struck is ["order.channel' in em("routine", "diff", "cancel").out
    events = [json.loads(line) for line in em("log", "export").out.splitlines()]
    (event,) = [one["body"] for one in events if one["kind"] == "routine_struck"]
    assert (event["by"], event["reason"], event["check"]) == (getuser(), "any", "order.channel")


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize(
    ("total", "advice", "checks"),
    [
        (1.5, "if that does not matter", "'order.channel'"),
        (0, "if none of that matters", "'order.channel' 'order.total'"),
    ],
)
def test_a_run_that_hands_over_says_how_to_strike_its_checks(
    total: float, advice: str, checks: str
) -> None:
    Path("tools.py").write_text(
        "def find_user(email):\n"
        "    return {'user_id': 'user_7', 'email': email, 'orders': ['W700']}\n"
        "def get_order(order_id):\n"
        "    return {'order_id': order_id, 'user_id': 'user_7', 'status': 'pending',\n"
        f"            'channel': 'phone', 'total': {total}}}\n"
        "def cancel_order(order_id, reason, notify):\n"
        "    return {'order_id': order_id, 'status': 'cancelled'}\n"
    )
    run = ("run", "cancel", "email=u7@example.com", "order_id=W700", "reason=ordered by mistake")
    ran = em(*run, "--tools", "tools.py")
    assert ran.code == 1
    command = f"em routine strike cancel {checks}"
    assert f"{advice}: {command}" in ran.err
    assert em(*shlex.split(command)[1:]).code == 0
    assert em(*run, "--tools", "tools.py").code == 0


@pytest.mark.usefixtures("kept")
def test_an_unknown_check_is_an_error_that_names_the_others() -> None:
    done = em("routine", "strike", "cancel", "order.colour")
    assert done.code != 0
    assert "order.status" in done.err
