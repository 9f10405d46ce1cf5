"""What a memory holds is its owner's: nobody else reads the files, no repository takes them."""

import stat
import subprocess
from pathlib import Path

from em import Memory


def rights(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_others_can_not_read_a_new_memory() -> None:
    with Memory() as memory:
        memory.observe("ana", "hello")
        assert rights(Path(".em")) == 0o700
        assert {rights(file) for file in Path(".em").glob("em.db*")} == {0o600}


def test_git_does_not_see_the_folder_of_a_memory() -> None:
    with Memory() as memory:
        memory.observe("ana", "hello")
    subprocess.run(["git", "init", "-q"], check=True)
    status = subprocess.run(
        ["git", "status", "--short"], check=True, capture_output=True, text=True
    )
    assert ".em" not in status.stdout


def test_a_folder_that_is_there_keeps_its_rights(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o755)
    with Memory(folder / "em.db") as memory:
        memory.observe("ana", "hello")
    assert rights(folder) == 0o755
    assert not (folder / ".gitignore").exists()
