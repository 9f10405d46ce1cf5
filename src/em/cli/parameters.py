"""What is typed and is not UTF-8: a path may be so; a name or a text is refused before any work."""

import os
import re
from typing import TYPE_CHECKING, Any

import click
from click.types import StringParamType

from em.errors import UsageError
from em.values.files import is_unicode, shown

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_PATHS = {"FILE", "DIR", "PATH"}


class Text(StringParamType):
    """A text, or a path where the metavar of its parameter names a FILE, a DIR or a PATH."""

    def __init__(self, metavar: str) -> None:
        words = set(re.findall("[A-Z]+", metavar))
        self._paths = words & _PATHS
        # In FILE|TRACE, what does not exist is an id.
        self._is_always_path = "PATH" in words or (bool(words) and words <= _PATHS)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the text; raise UsageError if it is neither UTF-8 nor a path."""
        if not isinstance(value, str) or is_unicode(value) or self._may_be_path(value):
            return super().convert(value, param, ctx)
        what = {"DIR": " or a folder", "FILE": " or a file"}
        also = "".join(what[one] + " that exists" for one in sorted(self._paths))
        raise UsageError(
            f"expected UTF-8 text{also}, got {shown(value)}",
            place="" if param is None else _name_of(param),
        )

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> "list[CompletionItem]":
        """Offer the names in the memory that begin as typed."""
        from em.cli.completion import offered

        return offered(ctx, param, incomplete)

    def _may_be_path(self, value: str) -> bool:
        if self._is_always_path or not self._paths:
            return self._is_always_path
        return os.path.isdir(value) if self._paths == {"DIR"} else os.path.exists(value)


def _name_of(param: click.Parameter) -> str:
    """Return a parameter as it is typed or as the usage shows it."""
    return param.opts[-1] if isinstance(param, click.Option) else param.human_readable_name
