"""A person looks through what was compiled: by keys on a terminal, by options elsewhere."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from em_command import em, on_terminal, pressing

from cancelled_orders import recording
from em import Memory
from em.cli.review import LEAVE, Item, Said, chosen, items_of, with_marked

READY = "Enter accepts"
COMPILE = ("compile", "trace.json", "--name", "cancel", "-o", "out")


@pytest.fixture(autouse=True)
def _trace() -> None:
    Path("trace.json").write_text(json.dumps(recording(1)))


def written(folder: str = "out") -> Any:
    return yaml.safe_load(Path(folder, "routine.yaml").read_text())


def key_of(screen: str, *words: str) -> str:
    """Return the key of the line of a review that has these words."""
    lines = [line.split() for line in screen.splitlines()]
    (key,) = {line[0] for line in lines if line[1:3] == list(words)}
    return key


def inputs(document: Any) -> list[str]:
    return [*document["input_schema"]["properties"]]


# --- by keys --------------------------------------------------------------------------------------


def test_enter_accepts_what_was_compiled() -> None:
    code, shown = pressing(*COMPILE, keys=[(READY, "\r")])
    assert (code, "learnt from 1 recording, in out" in shown) == (0, True)
    assert "notify" not in inputs(written())


def test_one_key_strikes_a_check_and_it_stays_struck() -> None:
    key = key_of(pressing(*COMPILE, keys=[(READY, LEAVE)])[1], "check", "order.channel")
    code, shown = pressing(*COMPILE, "--keep", keys=[(READY, key + "\r"), (READY, "\r")])
    assert code == 0, shown
    (struck,) = written()["struck"]
    assert struck.startswith("order.channel")
    assert "order.channel" not in [
        one["id"] for one in em("routine", "show", "out", "--json").json["checks"]
    ]
    kept = em("routine", "show", "cancel", "--json").json
    assert kept["struck"] == [struck]


def test_one_key_makes_a_constant_an_input_and_again_a_constant() -> None:
    first = pressing(*COMPILE, keys=[(READY, LEAVE)])[1]
    key = key_of(first, "constant", "cancel_order.notify")
    pressing(*COMPILE, keys=[(READY, key + "\r"), (READY, "\r")])
    assert "notify" in inputs(written())
    assert written()["review"] == {"inputs": ["cancel_order.notify"]}
    pressing(*COMPILE, keys=[(READY, key + key + "\r")])
    assert "notify" not in inputs(written()), "pressed twice, it stays as it is"


def test_a_change_that_the_recordings_contradict_is_refused_and_the_rest_stays() -> None:
    with Memory(".em/em.db") as memory:
        ids = [memory.add_trace(recording(number)) for number in (1, 2, 3)]
    compiling = ("compile", *ids, "--name", "cancel", "-o", "out")
    key = key_of(pressing(*compiling, keys=[(READY, LEAVE)])[1], "input", "order_id")
    code, shown = pressing(*compiling, keys=[(READY, key + "\r"), (READY, "\r")])
    assert (code, "Traceback" in shown) == (0, False)
    assert "order_id" in inputs(written())


@pytest.mark.parametrize("key", [LEAVE, "\x04"])
def test_leaving_stores_nothing(key: str) -> None:
    code, shown = pressing(*COMPILE, "--keep", keys=[(READY, "a" + key)])
    assert code != 0
    assert "Traceback" not in shown
    assert not Path("out").exists()
    assert not Path(".em/em.db").exists()


def test_keys_that_were_typed_too_early_accept_nothing() -> None:
    code, _ = pressing(*COMPILE, keys=[("", "\n\n"), (READY, LEAVE)])
    assert (code, Path("out").exists()) == (1, False)


def test_arrows_and_unknown_keys_change_nothing() -> None:
    code, _ = pressing(*COMPILE, keys=[(READY, "\x1b[A"), ("", "~%"), ("", "\r")])
    assert code == 0
    assert "struck" not in written()


def test_nobody_is_asked_where_nobody_can_answer() -> None:
    assert READY not in on_terminal(*COMPILE, "--json")
    asked = em(*COMPILE)
    assert (asked.code, READY in asked.err) == (0, False)


def test_every_input_constant_and_check_has_a_line() -> None:
    em(*COMPILE)
    found = [(one.kind, one.place) for one in items_of(written())]
    shown = em("routine", "show", "out", "--json").json
    assert [place for kind, place in found if kind == "input"] == inputs(written())
    assert [place for kind, place in found if kind == "constant"] == ["cancel_order.notify"]
    checks = [place for kind, place in found if kind == "check"]
    assert checks == [one["id"] for one in shown["checks"]]


def test_what_was_said_before_stays_said() -> None:
    em(*COMPILE)
    document = written()
    (constant,) = [one for one in items_of(document) if one.kind == "constant"]
    said = with_marked(document, Said(constants=["reason"]), [constant])
    assert (said.inputs, said.constants) == (["cancel_order.notify"], ["reason"])
    undone = with_marked(document, said, [Item("input", "notify", "notify", "")])
    assert (undone.inputs, undone.constants) == ([], ["reason"])


def test_the_end_of_the_keys_accepts_nothing() -> None:
    assert chosen({}, iter("xyz")) is None
    assert chosen({}, iter("\r")) == []


# --- by options -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["notify", "cancel_order.notify"])
def test_an_argument_becomes_an_input(name: str) -> None:
    assert em(*COMPILE, "--input", name).code == 0
    assert "notify" in inputs(written())
    assert json.loads(Path("out/input.json").read_text())["notify"] is True


def test_an_input_becomes_a_constant() -> None:
    made = em(*COMPILE, "--constant", "reason", "--json")
    assert made.code == 0, made.err
    assert "reason" not in inputs(written())
    assert {"place": "cancel_order.reason", "value": "ordered by mistake"} in made.json["constants"]


def test_a_constant_that_recordings_contradict_is_refused() -> None:
    with Memory(".em/em.db") as memory:
        ids = [memory.add_trace(recording(number)) for number in (1, 2, 3)]
    made = em("compile", *ids, "--name", "cancel", "-o", "out", "--constant", "order_id")
    assert (made.code, Path("out").exists()) == (1, False)
    assert "order_id" in made.err


@pytest.mark.parametrize(
    ("given", "closest"),
    [(("--constant", "raeson"), "reason"), (("--input", "notfy"), "cancel_order.notify")],
)
def test_a_name_that_is_not_there_is_refused_with_those_that_are(
    given: tuple[str, str], closest: str
) -> None:
    made = em(*COMPILE, *given)
    assert made.code in (1, 2)
    assert given[0] in made.err
    assert closest in made.err
    assert not Path("out").exists()


def test_compiling_again_keeps_to_what_was_said() -> None:
    with Memory(".em/em.db") as memory:
        first = [memory.add_trace(recording(number)) for number in (1, 2)]
    made = em("compile", *first, "--name", "cancel", "--keep", "--input", "notify")
    assert made.code == 0, made.err
    em("routine", "strike", "cancel", "order.channel")
    with Memory(".em/em.db") as memory:
        memory.add_trace(recording(3))
    again = em("compile", "--again", "cancel")
    assert again.code == 0, again.err
    shown = em("routine", "show", "cancel", "--json").json
    assert "notify" in [one["name"] for one in shown["inputs"]]
    assert "order.channel" not in [one["id"] for one in shown["checks"]]


def test_what_was_said_holds_for_the_next_version_unless_it_is_fresh() -> None:
    keep = ("compile", "trace.json", "--name", "cancel", "--keep")
    assert em(*keep, "--input", "notify", "--constant", "reason").code == 0
    em("routine", "strike", "cancel", "order.channel")
    Path("trace.json").write_text(json.dumps(recording(3)))
    names = {}
    for flags in ((), ("--fresh",)):
        made = em(*keep, *flags, "--json")
        assert made.code == 0, made.err
        shown = em("routine", "show", made.json["kept"], "--json").json
        checks = {one["id"] for one in shown["checks"]}
        names[flags] = ({one["name"] for one in shown["inputs"]}, "order.channel" in checks)
    assert names == {
        (): ({"email", "order_id", "notify"}, False),
        ("--fresh",): ({"email", "order_id", "reason"}, True),
    }


@pytest.mark.parametrize(
    "flag", [("--input", "x"), ("--constant", "x"), ("--force",), ("--fresh",)]
)
@pytest.mark.parametrize("way", [("--again", "cancel"), ("--all",)])
def test_options_of_one_routine_need_its_traces(
    flag: tuple[str, ...], way: tuple[str, ...]
) -> None:
    with Memory(".em/em.db"):
        pass
    made = em("compile", *way, *flag)
    assert (made.code, flag[0] in made.err) == (2, True)
