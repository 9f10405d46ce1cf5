"""Every module of em can be imported, on every Python that em supports."""

import importlib
import pkgutil

import em

APART = (".inside.", "__main__")
"""Modules that only run in a process of their own."""


def test_every_module_is_imported() -> None:
    names = [found.name for found in pkgutil.walk_packages(em.__path__, "em.")]
    assert len(names) > 100
    for name in names:
        if not any(part in name for part in APART):
            importlib.import_module(name)
