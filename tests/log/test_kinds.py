"""Each room registers the bodies of its own events."""

import subprocess
import sys

from tests.children import use_first_in_many_threads

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


CHECK = """
from importlib import import_module
from em.log.kinds import HOMES, check_body
from em.errors import BadBody
for home in HOMES.values():
    import_module(home)
def check():
    for kind in HOMES:
        try:
            check_body(kind, b"[]")
        except BadBody:
            pass
"""


def test_many_threads_may_be_the_first_to_use_a_kind() -> None:
    use_first_in_many_threads(CHECK, "check()")
