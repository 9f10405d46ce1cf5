"""bubblewrap: namespaces with nothing in them but Python; inside it the same filter and limits."""

import os
import shutil
import sys
from functools import lru_cache
from typing import ClassVar

from em.runner.sandbox import reach
from em.runner.sandbox.confinement import Confined
from em.runner.sandbox.inside import seccomp

_ALONE = (
    "--unshare-all --unshare-user --die-with-parent --new-session --clearenv --cap-drop ALL "
    "--uid 65534 --gid 65534 --hostname sandbox"
).split()


class Bubblewrap(Confined):
    """A file system of its own with a read-only Python; no network, no other process."""

    name: ClassVar[str] = "bubblewrap"
    landlock: ClassVar[bool] = False

    def command(self) -> list[str]:
        """bwrap, what it shows of the disk, and Python."""
        python = reach.interpreter()
        return [*_prefix(), "--remount-ro", "/", "--chdir", "/", "--", python]

    @classmethod
    @lru_cache(maxsize=1)
    def missing(cls) -> str:
        """Why it can't be used here."""
        if sys.platform != "linux":
            return "only Linux has it"
        if shutil.which("bwrap") is None:
            return "bwrap is not installed (Debian: apt install bubblewrap)"
        if os.uname().machine not in seccomp.MACHINES:
            return f"its filter does not know the machine {os.uname().machine}"
        return cls.trial()


@lru_cache(maxsize=1)
def _prefix() -> tuple[str, ...]:
    words = [str(shutil.which("bwrap")), *_ALONE]
    for path in (*reach.SYSTEM, *reach.shared_libraries(), reach.library(), reach.interpreter()):
        if os.path.islink(path) and os.path.isdir(path):
            words += ["--symlink", os.readlink(path), path]
        elif os.path.exists(path):
            words += ["--ro-bind", path, path]
    for path in reach.hidden():
        words += ["--tmpfs", path, "--remount-ro", path]
    return tuple(words)
