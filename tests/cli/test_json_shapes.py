"""What `--json` prints: one object with known names, also where there is nothing to list."""

import json
from pathlib import Path

import pytest
from em_command import em

from em import Memory
from em.traces.trace import Mission, ToolCall, Trace

LISTS = {
    "traces list": {"traces"},
    "runs list": {"runs"},
    "routine list": {"routines"},
    "lessons list": {"heuristics"},
    "routine behaviours list": {"behaviours"},
    "queue list": {"jobs", "workers"},
    "workflow list": {"workflows"},
    "workflow inspect --all": {"runs", "memory"},
    "log show": {"events", "more"},
    "routine suggest": {"suggestions", "proposals", "more"},
    "recall tea": {"passages", "notes"},
    "lessons retrieve tea": {"text", "heuristics", "notes"},
    "state rules ana": {"rules"},
    "state conflicts ana": {"conflicts"},
    "state alerts ana": {"alerts"},
}
"""Commands, and the names of what they print. A name that goes, or changes, breaks programs."""


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("shapes") / "em.db")
    with Memory(path) as memory:
        memory.observe("ana", {"city": "Porto"}, type="Profile")
        memory.checkpoint("ana")
        look = ToolCall(tool="look", args={"n": 1}, result=2)
        memory.add_trace(Trace(mission=Mission(goal="look"), events=[look], outcome="success"))
    return path


@pytest.mark.parametrize("command", LISTS)
def test_a_list_is_an_object_with_names_that_stay(
    filled: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = em(*command.split(), "--json", "--db", filled)
    assert ran.code == 0, ran.err
    assert ran.json.keys() == LISTS[command]


def test_a_mistake_is_an_object_with_its_code() -> None:
    ran = em("traces", "lst", "--json")
    assert ran.code == 2
    assert json.loads(ran.err)["error"]["code"] == "usage"
