"""Each room registers the bodies of its own events."""

import subprocess
import sys

from em.log.kinds import HOMES, body_type

EVERY_MODULE = """
from importlib import import_module
from pkgutil import walk_packages
import em
for module in walk_packages(em.__path__, "em."):
    if not module.name.endswith("__main__") and ".inside." not in module.name:
        import_module(module.name)
"""
REGISTERED = "from em.log import kinds; print(*sorted(kinds._BODIES))"


def registered_after(code: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", code + REGISTERED], check=True, capture_output=True, text=True
    )
    return done.stdout.split()


def test_every_kind_is_registered_by_the_module_that_the_table_names() -> None:
    registered = {kind: body_type(kind) for kind in HOMES}
    assert {kind: body.__module__ for kind, body in registered.items() if body} == HOMES


def test_no_module_registers_a_kind_that_the_table_does_not_name() -> None:
    assert registered_after(EVERY_MODULE) == sorted(HOMES)


def test_bodies_are_loaded_when_their_kind_is_first_used() -> None:
    assert registered_after("") == ["erased"]


MANY_THREADS = """
import os, sys
from threading import Barrier, Thread
from importlib import import_module
from em.log.kinds import HOMES, check_body
for home in HOMES.values():
    import_module(home)
for _ in range(8):
    if pid := os.fork():
        _, status = os.waitpid(pid, 0)
        if status:
            sys.exit(1)
    else:
        break
else:
    sys.exit()
sys.setswitchinterval(1e-6)
start = Barrier(8)
failed = []
def check():
    start.wait()
    for kind in HOMES:
        try:
            check_body(kind, b"[]")
        except Exception as error:
            if getattr(error, "code", "") != "bad_body":
                failed.append(error)
threads = [Thread(target=check) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
sys.exit(str(failed) if failed else 0)
"""


def test_many_threads_may_be_the_first_to_use_a_kind() -> None:
    subprocess.run([sys.executable, "-c", MANY_THREADS], check=True)
