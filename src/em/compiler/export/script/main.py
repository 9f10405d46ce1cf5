"""An exported script as a command."""

import argparse
import importlib
import importlib.util
import json
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from em.compiler.export.script.ends import Failed, NeedsInput


def main(run: Callable[..., Any], description: str) -> None:
    """Run this file as a command: the output as JSON, the exit code 1 if it failed."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--input", metavar="FILE", help="the input, as JSON")
    parser.add_argument("--tools", metavar="MODULE|FILE", help="where the tools are")
    parser.add_argument(
        "--answers", metavar="FILE", help="answers: {step: {field: value}}, as JSON"
    )
    given = parser.parse_args()
    try:
        # What tools print must not get between the result and who reads it.
        with redirect_stdout(sys.stderr):
            output = run(
                json.loads(Path(given.input).read_text("utf-8")) if given.input else {},
                load_tools(given.tools) if given.tools else {},
                json.loads(Path(given.answers).read_text("utf-8")) if given.answers else {},
            )
    except (Failed, NeedsInput) as problem:
        sys.exit(str(problem))
    print(json.dumps(output, ensure_ascii=False, indent=2))


def load_tools(source: str) -> Any:
    """A module by its name, or a file by its path."""
    if not source.endswith(".py"):
        return importlib.import_module(source)
    spec = importlib.util.spec_from_file_location(Path(source).stem, source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
