"""A person looks through what was compiled: by names on a terminal, by options elsewhere."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from em_command import em, pressing

from cancelled_orders import recording
from em import Memory
from em.cli.compilation import LEAVE

COMPILE = ("compile", "trace.json", "--name", "cancel", "-o", "out")


@pytest.fixture(autouse=True)
def _trace() -> None:
    Path("trace.json").write_text(json.dumps(recording(1)))


def written(folder: str = "out") -> Any:
    return yaml.safe_load(Path(folder, "routine.yaml").read_text())


def inputs(document: Any) -> list[str]:
    return [*document["input_schema"]["properties"]]


def test_what_is_named_changes_and_enter_stores() -> None:
    keys = [("change", "order.channel\r"), ("change", "cancel_order.notify\r"), ("change", "\r")]
    assert pressing(*COMPILE, keys=keys)[0] == 0
    assert "order.channel" in str(written()["struck"])
    assert "notify" in inputs(written())


def test_a_number_stands_for_the_name_beside_it() -> None:
    _, shown = pressing(*COMPILE, keys=[("change", f"{LEAVE}\r")])
    (line,) = [one for one in shown.splitlines() if " order.channel " in one and one[0].isdigit()]
    number = line.split()[0]
    assert pressing(*COMPILE, keys=[("change", f"{number}\r"), ("change", "\r")])[0] == 0
    assert [one for one in written()["struck"] if "order.channel" in one]


def test_a_name_that_is_not_there_changes_nothing() -> None:
    code, shown = pressing(*COMPILE, keys=[("change", "nothing\r"), ("change", "\r")])
    assert (code, "order.channel" in shown) == (0, True)
    assert "struck" not in written()


@pytest.mark.parametrize("key", [f"{LEAVE}\r", "\x04"])
def test_leaving_stores_nothing(key: str) -> None:
    code, _ = pressing(*COMPILE, keys=[("change", key)])
    assert (code, Path("out").exists()) == (1, False)


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
