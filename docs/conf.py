"""How `make docs` builds the pages of this folder as a site."""

import re
import sys
from pathlib import Path
from typing import Any

import em

sys.path.insert(0, str(Path(__file__).parent))  # for the directives in reference.py

project = "em"
copyright = "the authors of em"  # noqa: A001 - the name that Sphinx reads
version = release = em.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "reference"]
html_theme = "furo"
html_title = f"em {version}"
exclude_patterns = ["images"]
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_class_signature = "separated"
suppress_warnings = ["myst.xref_missing"]  # links to files beside docs; a test checks them


def as_text(
    _app: Any, _what: str, _name: str, _object: Any, _options: Any, lines: list[str]
) -> None:
    """Turn a docstring, which is plain text, into what Sphinx reads.

    Indented parts are code; `name: what it is` begins an item of a list; `this` is code.
    """
    made: list[str] = []
    pieces = re.split(
        r"(?m)^```python\n(.*?)^```$", "\n".join(lines), flags=re.DOTALL | re.MULTILINE
    )
    for number, piece in enumerate(pieces):
        if number % 2:
            made += [
                ".. code-block:: python",
                "",
                *(f"    {line}" for line in piece.splitlines()),
                "",
            ]
        else:
            made += [re.sub(r"(?<![`\\])`([^`]+)`(?!`)", r"``\1``", line) for line in _prose(piece)]
    lines[:] = made


def _prose(text: str) -> list[str]:
    made: list[str] = []
    for part in re.split(r"\n\s*\n", text):
        own = part.splitlines()
        if own and all(line.startswith("    ") for line in own):
            made += ["::", "", *own, ""]
            continue
        item = ""
        for line in own:
            if re.match(r"\w+(?:, \w+)*: ", line):
                made += [item, ""] if item else []
                name, _, rest = line.partition(": ")
                item = f"* **{name}**: {rest}"
            else:
                item = f"{item} {line.strip()}".strip()
        made += [item, ""]
    return made


def setup(app: Any) -> None:
    """Read docstrings as above."""
    app.connect("autodoc-process-docstring", as_text)
