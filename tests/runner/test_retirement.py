"""A retired version is out of use until it is restored; the log says who did it."""

from pathlib import Path
from typing import Any

import pytest
from tests.cli.em_command import em

from em import Memory
from em.compiler.suggestions import kept_from
from em.errors import NotFound
from em.log.event import EventQuery
from em.runner.card import list_routines
from em.runner.package import find_routine, keep_routine
from em.runner.standing import NeverInUse

TEXT = 'version: "1"\nname: greet\nsteps: [{{id: end, type: return, value: {}}}]\n'
OTHER = TEXT.format(0).replace("greet", "wave")
DB = {"EM_DB": "em.db"}


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    with Memory("em.db") as memory:
        for number in (1, 2):
            keep_routine(memory.store, {"routine.yaml": TEXT.format(number)})
        yield memory


def test_the_name_means_the_newest_version_in_use(memory: Memory) -> None:
    assert memory.retire("greet@2", by="ana").now == "greet@1"
    assert memory.run("greet").output == 1
    assert memory.retire("greet").now == "", "the name meant the first version"
    with pytest.raises(NotFound, match="no version is in use"):
        memory.run("greet")
    assert not kept_from(memory.store)
    assert memory.restore("greet@2", by="bo").now == "greet@2"
    assert memory.run("greet").output == 2


def test_the_log_says_who_retired_and_who_restored_it(memory: Memory) -> None:
    assert memory.retire("greet@2", by="ana").changed
    assert not memory.retire("greet@2", by="eve").changed
    assert memory.restore("greet@2", by="bo").changed
    assert not memory.restore("greet@2").changed
    events = list(memory.store.read(EventQuery(stream="routine/greet")))
    assert [(event.kind, event.body) for event in events] == [
        ("routine_retired", {"routine": "greet@2", "by": "ana"}),
        ("routine_restored", {"routine": "greet@2", "by": "bo"}),
    ]
    assert memory.log.verify().ok


def test_a_version_that_never_was_in_use_is_accepted_instead(memory: Memory) -> None:
    keep_routine(memory.store, {"routine.yaml": TEXT.format(3)}, retired=True)
    with pytest.raises(NeverInUse, match="em routine accept greet@3"):
        memory.restore("greet@3")
    assert find_routine(memory.store, "greet").version == 2


def test_a_list_says_that_a_version_was_never_in_use(memory: Memory) -> None:
    keep_routine(memory.store, {"routine.yaml": TEXT.format(3)}, retired=True)
    keep_routine(memory.store, {"routine.yaml": OTHER}, retired=True)
    memory.retire("greet@1")
    memory.retire("greet@2")
    listed = {one.ref: one.status for one in list_routines(memory.store)}
    assert listed == {"greet@3": "proposed", "wave@1": "proposed"}
    memory.accept("greet@3")
    memory.retire("greet@3")
    listed = {one.ref: one.status for one in list_routines(memory.store)}
    assert listed == {"greet@3": "retired", "wave@1": "proposed"}


def test_a_routine_in_a_folder_is_stored_and_accepted_at_once(
    memory: Memory, tmp_path: Path
) -> None:
    for name, text in (("wave", OTHER), ("greet", TEXT.format(3))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "routine.yaml").write_text(text)
    assert em("routine", "accept", "wave", **DB).code == 0
    assert em("routine", "accept", "./wave", "--json", **DB).json["accepted"] is False
    assert em("routine", "accept", "greet", **DB).code == 0  # the stored one of that name
    assert em("routine", "accept", "./greet", "--json", **DB).json["now"] == "greet@3"
    standing = {name: memory.standing(name).by_itself for name in ("wave", "greet@2", "greet@3")}
    assert standing == {"wave": True, "greet@2": True, "greet@3": True}
    assert em("routine", "accept", "./nothing", **DB).code == 1
    assert em("routine", "keep", "wave", **DB).code == 2


def test_the_commands(memory: Memory) -> None:
    assert em("routine", "retire", "greet@2", **DB).out == (
        "greet@2 is retired; greet means greet@1\n"
    )
    assert em("routine", "retire", "greet@2", **DB).out.startswith("greet@2 is already retired")
    assert em("routine", "restore", "greet@2", **DB).out == (
        "greet@2 is in use; greet means greet@2\n"
    )
    assert em("routine", "restore", "greet@1", **DB).out.startswith("greet@1 is already in use")
