"""em's skill: one line for each routine in use, written into the plugins that ask."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.cli.em_command import em

from em import Memory
from em.clients.hook_service import HookService
from em.clients.skill import FILE, LONGEST_ABOUT, SKILL, Skill
from em.runner.package import keep_routine
from em.runner.script_skill import keep_skill, kept_skills
from em.runner.trial import Proof, Trial

ECHO = "name: {}\ndescription: {}\nsteps: [{{id: out, type: return, value: '{{{{ said }}}}'}}]\n"


@pytest.fixture
def memory() -> Iterator[Memory]:
    with Memory(":memory:") as memory:
        yield memory


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    """A plugin as an agent has it."""
    plugin = tmp_path / "plugins" / "em"
    (plugin / FILE).parent.mkdir(parents=True)
    (plugin / FILE).write_text(SKILL)
    return plugin


def keep(memory: Memory, name: str, about: str = "Say it again.") -> None:
    keep_routine(memory.store, {"routine.yaml": ECHO.format(name, about)})


def lines(text: str) -> list[str]:
    return text.removeprefix(SKILL).splitlines()[3:]


def test_each_routine_in_use_has_one_short_line(memory: Memory) -> None:
    skill = Skill(memory.store)
    assert skill.text() == SKILL
    keep(memory, "say_again")
    keep(memory, "long", "word " * 1000)
    long, short = lines(skill.text())
    assert short.startswith("- `say_again`: Say it again. (")
    assert len(long) < LONGEST_ABOUT + 100
    memory.retire("long")
    assert lines(skill.text()) == [short]


def test_a_plugin_follows_the_routines_unless_somebody_changed_its_skill(
    memory: Memory, plugin: Path
) -> None:
    skill = Skill(memory.store)
    keep(memory, "say_again")
    skill.refresh(plugin)
    assert "`say_again`" in (plugin / FILE).read_text()
    keep(memory, "say_twice")
    skill.refresh(plugin)
    assert "`say_twice`" in (plugin / FILE).read_text()
    changed = (plugin / FILE).read_text().replace("the memory of", "my memory of")
    (plugin / FILE).write_text(changed)
    memory.retire("say_twice")
    skill.refresh(plugin)
    assert (plugin / FILE).read_text() == changed
    skill.refresh(plugin.parent)  # no plugin
    assert not (plugin.parent / FILE).exists()


def test_the_service_writes_it_where_a_hook_came_from(
    memory: Memory, plugin: Path, tmp_path: Path
) -> None:
    keep(memory, "say_again")
    address = tmp_path / "own" / "s"
    address.parent.mkdir(mode=0o700)
    Path(f"{address}.missed").write_bytes(bytes(plugin) + b'\0{"hook_event_name": "Stop"}\n')
    HookService(memory, address, idle=0.1).run()
    assert "`say_again`" in (plugin / FILE).read_text()


SCRIPT = "print('released')\n"


def keep_script(memory: Memory, script: str = SCRIPT) -> str:
    """Store a script as an agent proposes it, made of a trace; return its version."""
    trace = memory.add_trace({"task": "release", "steps": [], "outcome": "success"})
    events = [one.id for one in memory.log.read(stream=f"trace/{trace}")]
    head = "---\nname: release\ndescription: Release a version.\n---\n"
    trials = {"as recorded": [Trial("t1", "right")]}
    proof = Proof(at=datetime(2026, 11, 19, tzinfo=UTC), routine="", trials=trials)
    files = {"SKILL.md": head, "scripts/release.py": script}
    return keep_skill(memory.store, files, proof, ["version"], events).ref


def test_a_script_is_told_and_there_once_a_person_accepted_it(memory: Memory, plugin: Path) -> None:
    skill, ref = Skill(memory.store), keep_script(memory)
    assert skill.text() == SKILL
    shown: list[str] = []
    memory.accept(ref, agree=shown.extend)
    assert sorted(shown) == ["SKILL.md", "scripts/release.py"]
    skill.refresh(plugin)
    (line,) = [one for one in (plugin / FILE).read_text().splitlines() if ref in one]
    path = line.partition("`python3 ")[2].partition(" ")[0]
    assert (plugin / FILE).with_name("scripts").parent / path == plugin / "skills/em" / path
    assert (plugin / "skills/em" / path).read_text() == SCRIPT
    newer = keep_script(memory, "print('better')\n")
    skill.refresh(plugin)
    assert (plugin / "skills/em" / path).read_text() == SCRIPT, "the newer one only waits"
    memory.accept(newer)
    memory.retire(newer)
    memory.retire(ref)
    skill.refresh(plugin)
    assert (plugin / FILE).read_text() == SKILL
    assert not (plugin / "skills/em" / path).exists()


def test_a_script_is_listed_accepted_and_forgotten_by_commands() -> None:
    with Memory("em.db") as memory:
        ref = keep_script(memory)
    ran = em("routine", "accept", ref, "--db", "em.db")
    assert (ran.code, SCRIPT.strip() in ran.err) == (2, True), "nobody can be asked"
    assert SCRIPT.strip() in em("routine", "show", ref, "--db", "em.db").out
    assert em("routine", "accept", ref, "--yes", "--db", "em.db").code == 0
    (row,) = em("routine", "list", "--json", "--db", "em.db").json["skills"]
    assert (row["ref"], row["state"], row["tried"][:12]) == (ref, "in use", "right in 1 o")
    assert em("routine", "retire", ref, "--db", "em.db").code == 0
    (row,) = em("routine", "list", "--json", "--db", "em.db").json["skills"]
    assert row["state"] == "retired"
    with Memory("em.db") as memory:
        memory.forget([one.id for one in memory.log.read(kinds=["trace_started"])])
        assert [*kept_skills(memory.store)] == []
