"""em's skill: one line for each routine in use, written into the plugins that ask."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from em import Memory
from em.clients.hook_service import HookService
from em.clients.skill import FILE, LONGEST_ABOUT, SKILL, Skill
from em.runner.package import keep_routine

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
