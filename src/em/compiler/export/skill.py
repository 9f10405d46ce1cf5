"""A routine as an Agent Skill: a folder with SKILL.md, which says when to use it, and a script."""

import ast
import json
import re
from pathlib import Path

from em.compiler.export.python import export_python, signatures
from em.errors import ExportError
from em.runner.authorship import refuse_unread
from em.runner.package import Package
from em.runner.routine import PromptStep, Routine, ToolStep
from em.runner.tools import one_line

LONGEST_NAME = 64
_OTHER = re.compile(r"[^a-z0-9]+")


def skill_name(name: str) -> str:
    """Return the name of a skill and its folder: lower case, digits and hyphens."""
    return _OTHER.sub("-", name.lower()).strip("-")[:LONGEST_NAME].strip("-") or "routine"


def export_skill(
    package: Package, *, tools: str | Path | None = None, trust: bool = False
) -> dict[str, str]:
    """Return the files of the skill by path. `tools`: a file with the tools, which is included."""
    routine = package.routine
    files = {"scripts/routine.py": export_python(package, trust=trust)}
    if tools is not None:
        files["scripts/tools.py"] = _tools(Path(tools))
    files["SKILL.md"] = _skill(routine, with_tools=tools is not None)
    return files


def _tools(path: Path) -> str:
    try:
        code = path.read_bytes()
        source = code.decode()
        tree = ast.parse(source)
    except (OSError, UnicodeDecodeError, SyntaxError, ValueError) as error:
        raise ExportError(f"the file can't be read as Python: {error}", place=str(path)) from None
    refuse_unread(path, code)
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = ["em" if node.level else node.module or ""]
        for name in names:
            if name.partition(".")[0] == "em":
                raise ExportError(
                    "the file imports em, which the skill would not have",
                    place=f"{path}:{node.lineno}",  # type: ignore[attr-defined]  # an import has a line
                    fix="write the tools as plain functions in one file",
                )
    return source


def _skill(routine: Routine, *, with_tools: bool) -> str:
    name = skill_name(routine.name)
    about = one_line(routine.description, 900) or f"Runs the routine {one_line(routine.name, 100)}"
    schema = routine.input_schema or {"type": "object"}
    called = sorted({step.tool for step in routine.steps if isinstance(step, ToolStep)})
    asked = [step for step in routine.steps if isinstance(step, PromptStep)]
    option = " --tools scripts/tools.py" if with_tools else " --tools TOOLS.py" if called else ""
    option += " --answers answers.json" if asked else ""
    parts = [
        f"---\nname: {name}\ndescription: {json.dumps(about, ensure_ascii=False)}\n---",
        f"# {name}",
        "A task that was done before, as a script: it takes the same steps every time and asks no "
        "model. Use it where its description fits, in place of doing the steps by hand.",
        f"```bash\npython scripts/routine.py --input input.json{option}\n```",
        "It needs Python 3.11 or newer. The output is JSON on standard output; the exit code is 1 "
        "if a step failed, and standard error says which and why.",
        "## Input\n\nWrite `input.json` to fit this schema:",
        f"```json\n{json.dumps(schema, indent=2, ensure_ascii=False)}\n```",
    ]
    if asked:
        parts += [_questions(asked)]
    if called and not with_tools:
        parts += [
            "## Tools to bring\n\nThe script calls these; write them as functions of a file, and "
            "name it as `--tools`:",
            "\n".join(["```python", *signatures(routine), "```"]),
        ]
    if routine.secrets:
        named = ", ".join(f"`{one_line(secret.variable, 100)}`" for secret in routine.secrets)
        parts += [f"## Secrets\n\nThese environment variables must be set: {named}."]
    return "\n\n".join(parts) + "\n"


def _questions(asked: list[PromptStep]) -> str:
    lines = []
    for step in asked:
        fields = ", ".join(f"{field.name} ({field.type})" for field in step.prompt.fields)
        lines.append(
            f"- `{one_line(step.id, 100)}`: {one_line(step.prompt.message, 300)}"
            f" Fields: {one_line(fields, 300)}."
        )
    example = json.dumps({step.id: {f.name: "…" for f in step.prompt.fields} for step in asked})
    return (
        "## Questions\n\nAsk a person, don't make answers up, and write `answers.json`:\n\n"
        f"```json\n{example}\n```\n\n" + "\n".join(lines)
    )
