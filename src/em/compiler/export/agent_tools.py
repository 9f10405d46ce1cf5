"""A routine for agents without em: a LangChain tool, an OpenAI function, an Agent Skill."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from em.compiler.export.prelude import Failed, HandedOver
from em.compiler.export.script import Section, export_python, parsed, signatures
from em.compiler.routine_text import text_of
from em.compiler.toolset import (
    function_of,
    parameters_of,
    refuse_reserved,
    strict_function,
    without_nulls,
)
from em.errors import ExportError
from em.runner.authorship import refuse_unread
from em.runner.card import description_of, public_form
from em.runner.package import ROUTINE, Package
from em.runner.routine import Routine
from em.runner.tools import one_line
from em.runner.tools.coding import is_coding_tool
from em.values.files import read_file

# These functions are copied into the scripts of agents' tools.


def for_agent(run: Callable[..., Any], given: Any, tools: Any) -> Any:
    """Return what an agent gets: the output, or why the routine handed over."""
    try:
        return run(given, tools or {})
    except HandedOver as problem:
        message = str(problem)
        return {"status": "needs_input", "step_id": problem.step_id, "message": message}


def as_langchain(run: Callable[..., Any], about: dict[str, Any], tools: Any) -> Any:
    """Return a LangChain tool; the model sees why a run failed and may try again."""
    from langchain_core.tools import StructuredTool, ToolException

    def work(**given: Any) -> Any:
        try:
            return for_agent(run, given, tools)
        except Failed as problem:
            raise ToolException(str(problem)) from problem

    return StructuredTool.from_function(
        func=work,
        name=about["name"],
        description=about["description"],
        args_schema=about["parameters"],
        handle_tool_error=True,
    )


def openai_answer(run: Callable[..., Any], schema: Any, arguments: Any, tools: Any) -> str:
    """Return the text to send back for a call; the model sees why a run failed."""
    try:
        given = json.loads(arguments) if isinstance(arguments, str) else arguments
        output = for_agent(run, without_nulls(schema, given), tools)
    except (Failed, ValueError) as problem:
        return json.dumps({"error": str(problem)}, ensure_ascii=False)
    return json.dumps(output, ensure_ascii=False, default=str)


_LANGCHAIN = '''\
def langchain_tool(tools: Any = None) -> Any:
    """Return the routine as a LangChain tool; `tools` are those that it calls itself."""
    return as_langchain(run, TOOL, tools)
'''
_OPENAI = '''\
def handle(arguments: Any, tools: Any = None) -> str:
    """Return the text to send back for a call of FUNCTION; `tools` are those that it calls."""
    return openai_answer(run, ROUTINE["input_schema"], arguments, tools)
'''


def export_langchain(package: Package, *, trust: bool = False) -> str:
    """Return a module whose `langchain_tool()` is a StructuredTool. It needs langchain-core."""
    about = function_of(package.routine)
    refuse_reserved(about)
    usage = "    tool = langchain_tool(my_tools)"
    section = Section({"TOOL": about}, _LANGCHAIN, [as_langchain], usage)
    return export_python(package, trust=trust, section=section)


def export_openai(package: Package, *, trust: bool = False) -> str:
    """Return a module with FUNCTION, for a model, and `handle`, which answers its calls."""
    usage = "    client.chat.completions.create(..., tools=[FUNCTION])\n"
    usage += "    handle(call.function.arguments, my_tools)"
    function = {"type": "function", "function": strict_function(function_of(package.routine))}
    section = Section({"FUNCTION": function}, _OPENAI, [openai_answer], usage)
    return export_python(package, trust=trust, section=section)


# --- skills ---------------------------------------------------------------------------------------

LONGEST_NAME = 64
FOLDER = "routine"
"""The folder of the routine in a skill that runs it with em."""
_OTHER = re.compile(r"[^a-z0-9]+")
_WITH_EM = """\
A kind of task that was done before. It reads what it needs, and acts only if everything is as it \
was when the task was recorded; otherwise it hands over.{proof}

```bash
em run {folder} --input input.json {option} --json
```

It needs em (`pip install {needs}`), and no model. `status` is `ok`, `failed` or `needs_input`. \
With `needs_input`, `reason` says what is not as recorded: nothing was done, so do the task by \
hand. A `pending_prompt` says what is missing: ask a person, don't make answers up, and write them \
to `answers.json` as `{{STEP: {{FIELD: VALUE}}}}` with the `step_id` of the prompt:

```bash
em resume RUN_ID --answers answers.json {option} --json
```

If it failed, the answer says what was done before. Finish by hand then, and don't run it again. \
`--dry-run` shows what would be done."""
_ALONE = """\
A task that was done before, as a script: it takes the same steps every time and asks no model. \
Use it where its description fits, in place of doing the steps by hand.

```bash
python scripts/routine.py --input input.json{option}
```

It needs Python 3.11 or newer. The output is JSON on standard output; the exit code is 1 if a step \
failed, and standard error says which and why, and what was done before. If something was, finish \
by hand, and don't run it again."""
_HANDING_OVER = """\
## When it hands over

The script acts only if everything is as it was when the task was recorded. Otherwise it says \
"handed over" and why, before its first effect: nothing was done. Do the task by hand then."""


def skill_name(name: str) -> str:
    """Return the name of a skill and its folder: lower case, digits and hyphens."""
    return _OTHER.sub("-", name.lower()).strip("-")[:LONGEST_NAME].strip("-") or "routine"


def export_skill(
    package: Package, *, tools: str | Path | None = None, trust: bool = False
) -> dict[str, str]:
    """Return the files of the skill by path. `tools`: a file with the tools, which is included.

    The skill of a routine whose tools em has itself, for files and shell commands, has the routine,
    and runs it with em. Both are without personal data of the recordings.
    """
    routine = package.routine
    if tools is None and needs_em(routine):
        text = text_of(public_form(routine, is_shared=bool(package.trials)))
        return {f"{FOLDER}/{ROUTINE}": text, "SKILL.md": _em_skill(package)}
    files = {
        "scripts/routine.py": export_python(package, trust=trust, routine=public_form(routine)),
        "SKILL.md": _skill(routine, with_tools=tools is not None),
    }
    if tools is not None:
        code = read_file(Path(tools), ExportError)
        parsed(code, Path(tools))
        refuse_unread(Path(tools), code)
        files["scripts/tools.py"] = code.decode()
    return files


def needs_em(routine: Routine) -> bool:
    """Return whether em has all tools of a routine: those of coding agents, and shell commands."""
    own = {tool.name for tool in routine.tools if tool.shell is not None}
    called = routine.called_tools
    return bool(called) and all(name in own or is_coding_tool(name) for name in called)


def _text(routine: Routine, warning: str, *parts: str) -> str:
    """Return a SKILL.md: its front matter, its title and its parts."""
    name = skill_name(routine.name)
    said = one_line(description_of(routine), 900)
    about = said or f"Runs the routine {one_line(routine.name, 100)}"
    about = json.dumps(f"{warning} {about}".strip(), ensure_ascii=False)
    schema = parameters_of(routine) if routine.input_schema else {"type": "object"}
    shown = json.dumps(schema, indent=2, ensure_ascii=False)
    given = f"## Input\n\nWrite `input.json` to fit this schema:\n\n```json\n{shown}\n```"
    head = f"---\nname: {name}\ndescription: {about}\n---\n\n# {name}"
    return "\n\n".join([head, parts[0], given, *parts[1:]]) + "\n"


def _em_skill(package: Package) -> str:
    from em.runner.tools.shell import programs_of, template_of

    routine, trials = package.routine, package.trials
    shells = [template_of(tool).doing() for tool in routine.tools if tool.shell is not None]
    programs = sorted({name for done in shells for name in programs_of(done)})
    text = _WITH_EM.format(
        folder=FOLDER,
        option=" ".join(["--allow-folder .", *(f"--allow-command {name}" for name in programs)]),
        needs="'em-core[shell]'" if shells else "em-core",
        proof=f" On other tasks of this kind it was {trials.summary}." if trials else "",
    )
    return _text(routine, trials.warning, text)


def _skill(routine: Routine, *, with_tools: bool) -> str:
    called = routine.called_tools
    option = " --tools scripts/tools.py" if with_tools else " --tools TOOLS.py" if called else ""
    parts = [_ALONE.format(option=option)]
    if routine.checks == "hand_over":
        parts += [_HANDING_OVER]
    if called and not with_tools:
        parts += [
            "## Tools to bring\n\nThe script calls these; write them as functions of a file, and "
            "name it as `--tools`:",
            "\n".join(["```python", *signatures(routine), "```"]),
        ]
    if routine.secrets:
        named = ", ".join(f"`{one_line(secret.variable, 100)}`" for secret in routine.secrets)
        parts += [f"## Secrets\n\nThese environment variables must be set: {named}."]
    return _text(routine, "", *parts)
