"""The `em` command: parse, call the library, print."""

from em.cli.root import main

__all__ = ["main"]
