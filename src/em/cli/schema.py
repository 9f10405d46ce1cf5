"""`em schema`: JSON Schemas of the files that people write, so that editors complete them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec

from em.cli.command import command
from em.cli.options import writing
from em.cli.output import emit, note, print_json
from em.values.canonical import Json

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def _routine() -> Json:
    from em.runner.routine import Routine

    return msgspec.json.schema(Routine)


def _settings() -> Json:
    from em.settings import Settings

    made, workflow = msgspec.json.schema(Settings), _workflow()
    shared = made["$defs"].keys() & workflow["$defs"].keys()
    assert all(made["$defs"][name] == workflow["$defs"][name] for name in shared)
    made["$defs"] |= workflow["$defs"]
    made["$defs"]["Settings"]["properties"]["workflows"]["additionalProperties"] = {
        "$ref": workflow["$ref"]
    }
    return made


def _workflow() -> Json:
    from em.workflows.definition import WorkflowDef

    made = msgspec.json.schema(WorkflowDef)
    own = made["$defs"]["WorkflowDef"]
    # In a file the name stands before the workflow.
    del own["properties"]["name"]
    own["required"].remove("name")
    return made


def _trace() -> Json:
    from em.traces.trace import Trace

    return msgspec.json.schema(Trace)


MADE: dict[str, Callable[[], Json]] = {
    "em.yaml": _settings,
    "routine": _routine,
    "trace": _trace,
}
TITLES = {
    "em.yaml": "em.yaml, the settings and workflows of a folder",
    "routine": "routine.yaml, a routine of em",
    "trace": "a trace of em",
}


def schema_of(name: str) -> dict[str, Any]:
    """Return the JSON Schema of one kind of file."""
    return {"$schema": DIALECT, "title": TITLES[name], **MADE[name]()}


@command("schema")
@click.argument("name", type=click.Choice([*MADE]), required=False)
@click.option(
    "-o", "--output", metavar="DIR", help="Write all of them into this folder, as NAME.schema.json."
)
def schema(name: str | None, output: str | None) -> None:
    """Print the JSON Schema of em.yaml with its workflows, of a routine, or of a trace.

    An editor that speaks YAML completes and checks a file that begins with the line

    \b
      # yaml-language-server: $schema=schemas/routine.schema.json
    """
    if output is None:
        if name is None:
            raise click.UsageError(f"name one of {', '.join(MADE)}, or a folder for all: -o DIR")
        print_json(schema_of(name))
        return
    folder = Path(output)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.UsageError(f"{output}: can't be made: {error.strerror}") from None
    files = [str(folder / f"{one}.schema.json") for one in ([name] if name else MADE)]
    for file, one in zip(files, [name] if name else MADE, strict=True):
        with writing(file, "") as out:
            out.write(msgspec.json.format(msgspec.json.encode(schema_of(one))) + b"\n")
    emit({"files": files}, lambda: note(f"wrote {', '.join(files)}"))
