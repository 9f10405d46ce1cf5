"""Landlock, seccomp and resource limits: no program to install, for root and for users."""

import os
import sys
from functools import lru_cache
from typing import ClassVar

from em.runner.sandbox import reach
from em.runner.sandbox.confinement import Confined
from em.runner.sandbox.inside import landlock, seccomp


class Landlock(Confined):
    """The process confines itself before it sees the code."""

    name: ClassVar[str] = "landlock"
    landlock: ClassVar[bool] = True

    def command(self) -> list[str]:
        """Python as it is; the worker does the rest."""
        return [reach.interpreter()]

    @classmethod
    @lru_cache(maxsize=1)
    def missing(cls) -> str:
        """Why it can't be used here."""
        if sys.platform != "linux":
            return "only Linux has it"
        if os.uname().machine not in seccomp.MACHINES:
            return f"its filter does not know the machine {os.uname().machine}"
        if not landlock.version():
            return "this kernel has no landlock"
        return cls.trial()
