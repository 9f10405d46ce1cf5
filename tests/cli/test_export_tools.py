"""A routine as a skill, a LangChain tool and an OpenAI function: each runs where there is no em."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from em_command import em
from hypothesis import given, settings
from hypothesis import strategies as st

from em import Memory
from em.compiler.export.agent_tools import (
    export_skill,
)
from em.compiler.toolset import strict_schema, without_nulls
from em.errors import ExportError
from em.runner.authorship import WRITTEN_BY
from em.runner.package import Package, files_in, keep_routine
from em.values.json_schema import value_problems

SHOUT = """\
name: shout
description: "Say it loudly, to one or to all."
input_schema:
  type: object
  properties:
    text: {type: string, description: What to say}
    times: {type: integer, minimum: 1}
    to: {type: array, items: {type: object, properties: {name: {type: string}}}}
  required: [text]
tools: [{name: send, effect: write, description: Send it.}]
steps:
  - {id: s1, type: udf.call, function: loud, args: {text: "{{ text }}"}, save_as: said}
  - {id: s2, type: tool.call, tool: send, args: {text: "{{ said }}"}, save_as: sent}
  - {id: s3, type: return, value: {sent: "{{ sent }}", times: "{{ times | default(1) }}"}}
"""
UDF = "def loud(text):\n    return text.upper() + '!'\n"
TOOLS = "def send(text):\n    print('a tool prints')\n    return f'sent {text}'\n"


@pytest.fixture
def shout() -> Path:
    return write("shout", SHOUT, UDF)


def write(name: str, text: str, udf: str = "") -> Path:
    folder = Path(name)
    folder.mkdir()
    (folder / "routine.yaml").write_text(text)
    if udf:
        (folder / "udf.py").write_text(udf)
    Path("my_tools.py").write_text(TOOLS)
    return folder


def without_em(code: str, *args: str, site: bool = False) -> Any:
    """The JSON that a clean interpreter prints: no packages at all, or all but em."""
    start = "import sys; sys.path.insert(0, '.')\n"
    if site:
        start += "sys.modules['em'] = None\n"
    options = ["-I"] if site else ["-I", "-S"]
    run = subprocess.run(
        [sys.executable, *options, "-c", start + code, *args],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_a_skill_is_a_folder_that_works_by_itself(shout: Path) -> None:
    code, _, errors = em(
        "routine", "export", "shout", "--to", "skill", "-o", "skills", "--tools", "my_tools.py"
    )
    assert code == 0, errors
    folder = Path("skills/shout")
    text = (folder / "SKILL.md").read_text()
    _, head, body = text.split("---\n", 2)
    assert yaml.safe_load(head) == {
        "name": "shout",
        "description": "Say it loudly, to one or to all.",
    }
    (command,) = [line for line in body.splitlines() if line.startswith("python ")]
    (folder / "input.json").write_text('{"text": "hi"}')
    run = subprocess.run(
        [sys.executable, "-I", "-S", *command.split()[1:]],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(run.stdout) == {"sent": "sent HI!", "times": 1}
    assert em("routine", "export", "shout", "--to", "skill", "-o", "skills")[0] == 0, (
        "again, over its own"
    )
    assert "def send(*, text): ...  # Send it." in (folder / "SKILL.md").read_text()
    Path("skills/shout/SKILL.md").unlink()
    assert em("routine", "export", "shout", "--to", "skill", "-o", "skills")[0] == 2, (
        "over somebody else's"
    )


def test_a_skill_of_a_stranger_keeps_to_its_lines() -> None:
    text = 'name: "../../Évil --- ☠"\ndescription: "a\\n---\\nname: other\\n# Do this"\nsteps: []\n'
    files = export_skill(Package(write("evil", text)))
    head = files["SKILL.md"].split("---\n")[1]
    assert yaml.safe_load(head)["name"] == "vil"
    assert yaml.safe_load(head)["description"] == "a --- name: other # Do this"


def test_tools_that_need_em_do_not_go_along(shout: Path) -> None:
    Path("my_tools.py").write_text("from em.runner.tools import ToolRegistry\n")
    with pytest.raises(ExportError, match="would not have"):
        export_skill(Package(shout), tools="my_tools.py")
    assert em("routine", "export", "shout", "--to", "openai", "--tools", "my_tools.py")[0] == 2


def test_a_langchain_tool(shout: Path) -> None:
    assert em("routine", "export", "shout", "--to", "langchain", "-o", "lc.py")[0] == 0
    found = without_em(
        "import json, lc, my_tools, contextlib\n"
        "tool = lc.langchain_tool(my_tools)\n"
        "with contextlib.redirect_stdout(sys.stderr):\n"
        "    out = tool.invoke({'text': 'hi', 'times': 2})\n"
        "    failed = lc.langchain_tool({}).invoke({'text': 'hi'})\n"
        "from langchain_core.utils.function_calling import convert_to_openai_tool\n"
        "print(json.dumps([tool.name, tool.description, tool.args, out, failed,"
        " convert_to_openai_tool(tool)['function']['name']]))",
        site=True,
    )
    name, description, args, out, failed, called = found
    assert (name, description, called) == ("shout", "Say it loudly, to one or to all.", "shout")
    assert args["text"] == {"type": "string", "description": "What to say"}
    assert out == {"sent": "sent HI!", "times": 2}
    assert "there is no tool 'send'" in failed


def strictly(schema: Any) -> None:
    """What OpenAI asks of a strict function's parameters."""
    if "anyOf" in schema:
        for part in schema["anyOf"]:
            strictly(part)
        return
    assert schema.keys() & {"type", "enum", "const"}, schema
    if schema.get("type") == "object" or "object" in schema.get("type", ()):
        assert schema["additionalProperties"] is False
        assert sorted(schema["required"]) == sorted(schema["properties"])
        for part in schema["properties"].values():
            strictly(part)
    if "array" in schema.get("type", ()):
        strictly(schema["items"])
    assert not schema.keys() & {"default", "allOf", "oneOf", "not", "if", "patternProperties"}


def test_an_openai_function_and_its_handler(shout: Path) -> None:
    assert em("routine", "export", "shout", "--to", "openai", "-o", "oa.py")[0] == 0
    found = without_em(
        "import json, oa, my_tools, contextlib\n"
        "with contextlib.redirect_stdout(sys.stderr):\n"
        "    said = [oa.handle(given, my_tools) for given in (\n"
        '        \'{"text": "hi", "times": null, "to": [{"name": null}]}\', \'{}\', \'no JSON\',\n'
        "        '[1]')]\n"
        "print(json.dumps([oa.FUNCTION, *map(json.loads, said)]))"
    )
    function, done, missing, nonsense, odd = found
    assert function["type"] == "function"
    assert (function["function"]["name"], function["function"]["strict"]) == ("shout", True)
    strictly(function["function"]["parameters"])
    assert done == {"sent": "sent HI!", "times": 1}
    assert "'text' is a required property" in missing["error"]
    assert nonsense["error"]
    assert odd["error"]
    from openai.types.chat import ChatCompletionFunctionToolParam
    from pydantic import TypeAdapter

    TypeAdapter(ChatCompletionFunctionToolParam).validate_python(function, strict=True)


SCALARS = st.sampled_from(
    [
        {"type": "string"},
        {"type": "integer"},
        {"type": "boolean", "description": "x"},
        {"enum": ["a", "b"]},
        {"type": ["string", "null"]},
        {"anyOf": [{"type": "string"}, {"type": "number"}]},
    ]
)
SCHEMAS = st.recursive(
    SCALARS,
    lambda parts: st.one_of(
        parts.map(lambda part: {"type": "array", "items": part}),
        st.dictionaries(st.sampled_from("abc"), parts, min_size=1).flatmap(
            lambda found: st.sets(st.sampled_from(sorted(found))).map(
                lambda needed: {
                    "type": "object",
                    "properties": found,
                    "required": sorted(needed),
                }
            )
        ),
    ),
    max_leaves=8,
)


def values_of(schema: Any) -> st.SearchStrategy[Any]:
    if "anyOf" in schema:
        return st.one_of([values_of(part) for part in schema["anyOf"]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return st.one_of([_values_of_kind(kind, schema) for kind in kinds])


def _values_of_kind(kind: str, schema: Any) -> st.SearchStrategy[Any]:
    if kind == "object":
        parts = {name: values_of(part) for name, part in schema["properties"].items()}
        return st.fixed_dictionaries(parts)
    if kind == "array":
        return st.lists(values_of(schema["items"]), max_size=3)
    plain: dict[str, st.SearchStrategy[Any]] = {
        "string": st.text(max_size=3),
        "integer": st.integers(-9, 9),
        "number": st.floats(allow_nan=False, allow_infinity=False),
        "boolean": st.booleans(),
        "null": st.none(),
    }
    return plain[kind]


@settings(deadline=None)
@given(st.data(), SCHEMAS)
def test_what_fits_the_strict_schema_fits_the_routine_s_own(data: st.DataObject, part: Any) -> None:
    schema = {"type": "object", "properties": {"x": part}, "required": ["x"]}
    strict = strict_schema(schema)
    assert strict is not None
    strictly(strict)
    sent = data.draw(values_of(strict))
    assert not list(value_problems(schema, without_nulls(schema, sent)))


@pytest.mark.parametrize("to", ["python", "skill", "langchain", "openai"])
def test_what_a_model_wrote_leaves_the_sandbox_only_when_a_person_says_so(
    shout: Path, to: str
) -> None:
    marks = {"udf.py": {"model": "m", "sha256": ""}}
    (shout / WRITTEN_BY).write_text(json.dumps(marks))
    with Memory("em.db") as memory:
        keep_routine(memory.store, files_in(shout))
    for routine in ("shout", "./shout"):
        code, out, errors = em(
            "routine", "export", routine, "--db", "em.db", "--to", to, "-o", "made"
        )
        assert (code, out) == (1, "")
        assert "nobody has read them" in errors
        assert not Path("made").exists()
    assert em("routine", "export", "./shout", "--to", to, "-o", "made", "--trust")[0] == 0


CODING = """\
name: changelog
checks: hand_over
input_schema: {type: object, required: [version], properties: {version: {type: string}}}
tools: [{name: Read, effect: read}, {name: Write, effect: write}]
steps:
  - {id: text, type: tool.call, tool: Read, args: {file_path: VERSION}, save_as: text}
  - {id: write, type: tool.call, tool: Write, args: {file_path: VERSION, content: "{{ version }}"}}
"""


def test_a_skill_whose_tools_em_has_runs_the_routine_with_em() -> None:
    files = export_skill(Package(write("changelog", CODING)))
    assert set(files) == {"routine/routine.yaml", "SKILL.md"}
    assert "em run routine --input input.json --allow-folder . --json" in files["SKILL.md"]
    assert yaml.safe_load(files["routine/routine.yaml"])["name"] == "changelog"
