"""A routine as one Python script that needs its tools, and not em."""

import ast
import keyword
import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from em.compiler.export.python_expressions import Translator, call, constant, name
from em.compiler.export.script_file import WIDTH, Parts, Udfs, expression, tools_to_bring
from em.errors import ExportError
from em.runner.authorship import runs_in_sandbox
from em.runner.expressions.language import FUNCTIONS
from em.runner.package import UDF, Package
from em.runner.routine import (
    AssertStep,
    Default,
    PromptStep,
    ReturnStep,
    Routine,
    Step,
    ToolStep,
    UdfStep,
)
from em.values.canonical import Json


class Script(Protocol):
    """What a call needs of the script it stands in."""

    def python(self, word: str) -> str:
        """What a name of the routine is called in the script."""
        ...

    def target(self, step: ToolStep | UdfStep) -> ast.expr:
        """The function that a step calls."""
        ...

    def translate(self, step: Step, field: str, value: Any, **local: str) -> ast.expr:
        """A value of a step."""
        ...

    def translate_bare(self, step: Step, field: str, source: str, **local: str) -> ast.expr:
        """A bare expression of a step."""
        ...


class StepCall:
    """The call of one step, in the simplest form that does all that the step asks for."""

    def __init__(self, script: Script, step: ToolStep | UdfStep) -> None:
        self._script, self._step = script, step
        self._each = step.for_each is not None
        self._item = script.python(step.as_) if self._each else ""
        self._local = {step.as_: self._item} if self._each else {}

    def value(self) -> tuple[ast.expr, list[ast.expr], list[ast.expr]]:
        """The call, with the checks that stand before and behind it."""
        step = self._step
        items = None
        if self._each:
            items = call("each", self._script.translate(step, "for_each", step.for_each))
        if items is not None and step.parallel > 1:
            return self._side_by_side(items), [], []
        has_checks = bool(step.checks and (step.checks.pre or step.checks.post))
        careful = bool(step.retry or step.timeout is not None or step.on_error != "fail")
        if careful or (has_checks and self._each):
            args = function_of(self._args(), bound=self._item)
            one: ast.expr = call("attempt", self._target(), args, **self._policy())
            return self._for_all(one, items), [], []
        pre = self._checks("pre")
        return self._for_all(self._plain(), items), pre, self._checks("post")

    def _target(self) -> ast.expr:
        return self._script.target(self._step)

    def _for_all(self, one: ast.expr, items: ast.expr | None) -> ast.expr:
        if items is None:
            return one
        target = ast.Name(self._item, ast.Store())
        return ast.ListComp(one, [ast.comprehension(target, items, [], 0)])

    def _plain(self) -> ast.expr:
        args = self._args()
        assert isinstance(args, ast.Dict)
        keywords, rest = [], ast.Dict([], [])
        for key, value in zip(args.keys, args.values, strict=True):
            if isinstance(key, ast.Constant) and is_word(key.value):
                keywords.append(ast.keyword(str(key.value), value))
            elif key is None:
                keywords.append(ast.keyword(None, value))
            else:
                rest.keys.append(key)
                rest.values.append(value)
        if rest.keys:
            keywords.append(ast.keyword(None, rest))
        return ast.Call(self._target(), [], keywords)

    def _args(self) -> ast.expr:
        step = self._step
        args = self._script.translate(step, "args", dict(step.args), **self._local)
        assert isinstance(args, ast.Dict)
        if step.idempotency_key is not None:
            if "idempotency_key" in step.args:
                raise ExportError(
                    "the key is also given as an argument", place=f"step {step.id}, field args"
                )
            key = self._script.translate(
                step, "idempotency_key", step.idempotency_key, **self._local
            )
            args.keys.append(None)
            args.values.append(call("key_for", self._target(), function_of(key, bound=self._item)))
        return args

    def _checks(self, when: str) -> list[ast.expr]:
        checks = self._step.checks
        sources: Sequence[str] = getattr(checks, when) if checks else ()
        local = {**self._local, "result": "result"} if when == "post" else self._local
        return [
            call(
                "check",
                self._script.translate_bare(self._step, f"checks.{when}[{n}]", source, **local),
                ast.Constant(when),
                ast.Constant(source),
            )
            for n, source in enumerate(sources)
        ]

    def _policy(self, *, with_item: bool = False) -> dict[str, ast.expr]:
        step = self._step
        found: dict[str, ast.expr] = {}
        item = [self._item] if with_item else []
        for when, names in (("pre", item), ("post", [*item, "result"])):
            checks = self._checks(when)
            if checks:
                all_of = checks[0] if len(checks) == 1 else ast.List(checks, ast.Load())
                found[when] = function_of(all_of, *names, bound="" if with_item else self._item)
        if step.retry is not None:
            found["attempts"] = ast.Constant(step.retry.attempts)
            found["backoff"] = ast.Constant(step.retry.backoff)
            if step.retry.errors:
                found["errors"] = constant(tuple(step.retry.errors), f"step {step.id}, field retry")
        if step.timeout is not None:
            found["timeout"] = ast.Constant(step.timeout)
        if step.on_error != "fail":
            default = step.on_error.default if isinstance(step.on_error, Default) else None
            found["otherwise"] = constant(default, f"step {step.id}, field on_error")
        return found

    def _side_by_side(self, items: ast.expr) -> ast.expr:
        return call(
            "side_by_side",
            items,
            self._target(),
            function_of(self._args(), self._item),
            at_once=ast.Constant(self._step.parallel),
            **self._policy(with_item=True),
        )


def is_word(word: Any) -> bool:
    """Whether Python can have it as a name."""
    return (
        isinstance(word, str)
        and word.isidentifier()
        and word.isascii()
        and not keyword.iskeyword(word)
        and not word.startswith("__")
    )


def function_of(body: ast.expr, *names: str, bound: str = "") -> ast.Lambda:
    """A function of these names; `bound` is one that keeps the value it has now."""
    taken = ast.arguments(
        posonlyargs=[],
        args=[ast.arg(word) for word in (*names, *([bound] if bound else ()))],
        kwonlyargs=[],
        kw_defaults=[],
        defaults=[name(bound)] if bound else [],
    )
    return ast.Lambda(taken, body)


OWN_NAMES = frozenset("input tools answers run Tools TOOLS INPUT_SCHEMA OUTPUT_SCHEMA".split())
BUILTINS = frozenset(
    "list dict str int float bool isinstance getattr iter reversed Mapping".split()
)
CHECKED = frozenset(
    "type properties required items enum const additionalProperties title description default"
    " examples $schema".split()
)


class Section(NamedTuple):
    """What a script has beside its steps, to be used by other code."""

    constants: Json
    code: str
    name: str
    usage: str


def export_python(package: Package, *, trust: bool = False, section: Section | None = None) -> str:
    """The script: it does what the runner does with this routine, without a journal.

    It has no sandbox: functions that a model wrote must have been read by a person.
    """
    path = package.folder / UDF
    code = path.read_bytes() if path.exists() else b""
    if runs_in_sandbox(path, code) and not trust:
        raise ExportError(
            "a model wrote these functions and nobody has read them: a script has no sandbox",
            place=str(path),
            fix="read them and say so with `em trust`, or export with --trust",
        )
    try:
        source = code.decode()
    except UnicodeDecodeError as error:
        raise ExportError(f"it is no UTF-8: {error}", place=str(path)) from None
    return _Script(package.routine, Udfs(source, package.folder), section).text()


class _Script:
    def __init__(self, routine: Routine, udfs: Udfs, section: Section | None) -> None:
        self._routine, self._udfs, self._section = routine, udfs, section
        self._parts = Parts()
        taken = self._parts.names | OWN_NAMES
        if section is not None:
            taken |= {section.name, *section.constants}
        udfs.check_names(taken)
        self._reserved = taken | BUILTINS | FUNCTIONS.keys() | udfs.names
        self._functions = frozenset(udfs.functions)
        self._pythonic: dict[str, str] = {}
        self._referred: set[str] = set()
        self._local: dict[str, str] = {}

    def text(self) -> str:
        """All of the script."""
        self._steps()  # to learn which names are referred to
        body = self._steps()
        head = self._head()
        schemas = self._schemas()
        lines = [*head, *body] if head else body[1:]
        run = "".join(f"    {line}".rstrip() + "\n" for line in lines)
        signature = "def run(input: Any, tools: Any, answers: Any = None) -> Any:\n"
        doc = _doc(self._routine.description or f"Run {self._routine.name}.", "    ")
        bring = tools_to_bring(self._routine)
        more = self._more()
        used = "\n".join([schemas, bring, signature + run, more, "main"])
        parts, imports = self._parts.needed_by(used, self._udfs)
        sections = [
            _doc(self._about(), ""),
            imports.rstrip("\n"),
            schemas.rstrip("\n"),
            bring.rstrip("\n"),
            self._udfs.code.strip("\n"),
            (signature + doc + run).rstrip("\n"),
            more.rstrip("\n"),
            "# What follows does for the steps above what em's runner does for a routine.\n\n\n"
            + parts,
            'if __name__ == "__main__":\n    main(run, (__doc__ or "").partition("\\n")[0])',
        ]
        script = _stacked([section for section in sections if section])
        ast.parse(script)
        return script

    def _about(self) -> str:
        unchecked = sorted(
            _unchecked(self._routine.input_schema) | _unchecked(self._routine.output_schema)
        )
        text = f"{self._routine.name}: a routine as a script, written by `em export`.\n\n"
        text += "It needs Python 3.11 or newer and its tools (see Tools below), not em:\n\n"
        text += "    python THIS_FILE --input input.json --tools my_tools.py\n\n"
        if self._section is not None:
            text += f"As a tool of an agent:\n\n{self._section.usage}\n\n"
        text += "It keeps no journal: a run that was interrupted starts again from the beginning."
        if unchecked:
            text += f" Of the schemas it does not check: {', '.join(unchecked)}."
        return text

    # --- names -----------------------------------------------------------------------------------

    def python(self, word: str) -> str:
        """What a name of the routine is called in the script."""
        if word not in self._pythonic:
            free = word if word.isidentifier() and word.isascii() else "value"
            taken = self._reserved | set(self._pythonic.values())
            while free in taken or keyword.iskeyword(free) or free.startswith("it_"):
                free = f"the_{free}" if free.startswith("it_") else f"{free}_"
            self._pythonic[word] = free
        return self._pythonic[word]

    def _resolve(self, word: str, place: str) -> tuple[ast.expr, bool]:
        """What a name is at this point of the script, and whether it may be missing."""
        is_call, word = word.endswith("()"), word.removesuffix("()")
        known = word in self._local or word in self._sure or word in self._maybe
        if is_call and known:
            raise ExportError(f"{word!r} is called, but is also the name of a value", place=place)
        if is_call:
            return name(word), False
        if not known:
            if word in FUNCTIONS or word in self._functions:
                raise ExportError(f"{word!r} is a function; call it", place=place)
            self._maybe.add(word)
        self._referred.add(word)
        may_be_missing = word not in self._local and word not in self._sure
        if word not in self._local:
            self._inputs.setdefault(word, None)
        return name(self._local.get(word) or self.python(word)), may_be_missing

    def _saved(self, word: str | None, *, surely: bool) -> str | None:
        """The variable that keeps a result; None where nothing refers to it."""
        if word is None:
            return None
        if word not in self._sure:
            (self._sure if surely else self._maybe).add(word)
        if surely:
            self._begun.setdefault(word, None)
        return self.python(word) if word in self._referred else None

    def _translator(self, step: Step, field: str, **local: str) -> Translator:
        self._local = local
        return Translator(self._resolve, self._functions, f"step {step.id}, field {field}")

    # --- the body --------------------------------------------------------------------------------

    def _head(self) -> list[str]:
        """Checks, and the input by its names."""
        lines = []
        if self._routine.input_schema is not None:
            lines.append('check_shape(INPUT_SCHEMA, input, "input")')
        if any(isinstance(step, ToolStep) for step in self._routine.steps):
            lines.append("tools = bring(tools, TOOLS)")
        for secret in self._routine.secrets:
            given = call("secret", ast.Constant(secret.name), ast.Constant(secret.variable))
            lines.append(_statement(f"{self.python(secret.name)} = ", given, 4))
        for word in self._inputs:
            if word in self._secret_names():
                continue
            key = expression(ast.Constant(word), 0, 0)
            if word in self._required():
                lines.append(f"{self.python(word)} = input[{key}]")
            elif word in self._may_be_input:
                lines.append(f"{self.python(word)} = input.get({key}, MISSING)")
        return lines

    def _required(self) -> set[str]:
        schema = self._routine.input_schema or {}
        return set(schema.get("required") or ())

    def _secret_names(self) -> set[str]:
        return {secret.name for secret in self._routine.secrets}

    def _steps(self) -> list[str]:
        declared = (self._routine.input_schema or {}).get("properties") or {}
        self._sure = self._required() | self._secret_names()
        self._maybe = set(declared) - self._sure
        self._inputs: dict[str, None] = {}
        self._begun: dict[str, None] = {}
        self._local = {}
        self._may_be_input: set[str] = set()
        lines: list[str] = []
        for step in self._routine.steps:
            lines += ["", f"with step({expression(ast.Constant(step.id), 0, 0)}):"]
            before = set(self._sure)
            block = self._step(step)
            self._may_be_input |= set(self._inputs) - before
            lines += [f"    {line}".rstrip() for line in "\n".join(block).split("\n")]
            if isinstance(step, ReturnStep) and step.when is None:
                return lines
        return [*lines, "", *self._leaving(ast.Constant(None), 4)]

    def _step(self, step: Step) -> list[str]:
        indent = 8 if step.when is None else 12
        test = None
        if step.when is not None:
            test = self._translator(step, "when").expression(step.when)
        block = [f"# {line}" for line in _comment(step.description)]
        if isinstance(step, ReturnStep):
            block += self._leaving(self._translator(step, "value").value(step.value), indent)
        elif isinstance(step, AssertStep):
            block += self._assertion(step, indent)
        elif isinstance(step, PromptStep):
            block += self._question(step, indent)
        else:
            block += self._calling(step, indent)
        if test is None:
            return block
        lines = "\n".join(block).split("\n")
        return [f"if {expression(test, 8, 11, 1)}:", *(f"    {line}".rstrip() for line in lines)]

    def _leaving(self, value: ast.expr, indent: int) -> list[str]:
        if self._routine.output_schema is None:
            return [_statement("return ", value, indent)]
        return [
            _statement("output = ", value, indent),
            'check_shape(OUTPUT_SCHEMA, output, "output")',
            "return output",
        ]

    def _assertion(self, step: AssertStep, indent: int) -> list[str]:
        holds = self._translator(step, "check").expression(step.check)
        message = self._translator(step, "message").value(step.message)
        lines = [_statement("", call("ensure", holds, function_of(message)), indent)]
        saved = self._saved(step.save_as, surely=step.when is None)
        return [*lines, f"{saved} = None"] if saved else lines

    def _question(self, step: PromptStep, indent: int) -> list[str]:
        prompt = msgspec.to_builtins(step.prompt)
        translator = self._translator(step, "prompt")
        asked = call(
            "ask",
            ast.Constant(step.id),
            translator.value(prompt["message"]),
            translator.value(list(prompt.get("fields", ()))),
            ast.BoolOp(ast.Or(), [name("answers"), ast.Dict([], [])]),
        )
        saved = self._saved(step.save_as, surely=step.when is None)
        return [_statement(f"{saved} = " if saved else "", asked, indent)]

    def _calling(self, step: ToolStep | UdfStep, indent: int) -> list[str]:
        value, before, after = StepCall(self, step).value()
        saved = self._saved(step.save_as, surely=step.when is None)
        lines = [_statement("", check, indent) for check in before]
        kept = saved
        if after:
            kept = "result" if "result" not in self._pythonic.values() else "result_"
        lines.append(_statement(f"{kept} = " if kept else "", value, indent))
        lines += [_statement("", check, indent) for check in after]
        if saved and kept != saved:
            lines.append(f"{saved} = {kept}")
        return lines

    # --- what stands above -----------------------------------------------------------------------

    def _schemas(self) -> str:
        lines = []
        for word, schema in (
            ("INPUT_SCHEMA", self._routine.input_schema),
            ("OUTPUT_SCHEMA", self._routine.output_schema),
        ):
            if schema is not None:
                value = constant(schema, word.lower())
                lines.append(_statement(f"{word}: dict[str, Any] = ", value, 0))
        return "\n".join(lines)

    def _more(self) -> str:
        """What is there for other code to use."""
        if self._section is None:
            return ""
        lines = [
            _statement(f"{word}: dict[str, Any] = ", constant(value, word), 0)
            for word, value in self._section.constants.items()
        ]
        return "\n".join([*lines, "", "", self._section.code])

    def target(self, step: ToolStep | UdfStep) -> ast.expr:
        """The function that a step calls."""
        if isinstance(step, UdfStep):
            if step.function not in self._functions:
                raise ExportError(
                    f"there is no function {step.function!r} in {UDF}",
                    place=f"step {step.id}, field function",
                )
            found = name(step.function)
            return call("awaited", found) if step.function in self._udfs.coroutines else found
        if is_word(step.tool):
            return ast.Attribute(name("tools"), step.tool, ast.Load())
        return call("getattr", name("tools"), ast.Constant(step.tool))

    def translate(self, step: Step, field: str, value: Any, **local: str) -> ast.expr:
        """A value of a step."""
        return self._translator(step, field, **local).value(value)

    def translate_bare(self, step: Step, field: str, source: str, **local: str) -> ast.expr:
        """A bare expression of a step."""
        return self._translator(step, field, **local).expression(source)


def _statement(begin: str, value: ast.expr, indent: int) -> str:
    """`begin` and an expression, its further lines indented as those of a block are."""
    text = expression(value, indent, indent + len(begin))
    pad = " " * indent
    return begin + "\n".join(line.removeprefix(pad) for line in text.split("\n"))


def _comment(text: str) -> list[str]:
    return textwrap.wrap(" ".join(_printable(text).split()), WIDTH - 16)


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() or char == "\n" else " " for char in text)


def _doc(text: str, pad: str) -> str:
    """A docstring."""
    safe = _printable(text).replace("\\", "\\\\").replace('"""', "'''").strip()
    lines = []
    for line in safe.split("\n"):
        lines += (
            [line] if line.startswith("    ") else textwrap.wrap(line, WIDTH - 6 - len(pad)) or [""]
        )
    if len(lines) == 1 and not lines[0].endswith('"'):
        return f'{pad}"""{lines[0]}"""\n'
    body = "\n".join(f"{pad}{line}".rstrip() for line in lines[1:])
    return f'{pad}"""{lines[0]}\n{body}\n{pad}"""\n'


def _stacked(sections: list[str]) -> str:
    """Sections with the blank lines that Python programs have between them."""
    text = sections[0].rstrip("\n")
    for section in sections[1:]:
        is_definition = section.startswith(("def ", "class ", "@", "if ", "# What"))
        text += ("\n\n\n" if is_definition or "\ndef " in text[-4000:] else "\n\n") + section
    return text + "\n"


def _unchecked(schema: Json | None) -> set[str]:
    """The keywords of a schema that the script does not check."""
    if not isinstance(schema, dict):
        return set()
    found = set(schema) - CHECKED
    parts: list[Any] = [schema.get("items"), schema.get("additionalProperties")]
    properties = schema.get("properties")
    parts += properties.values() if isinstance(properties, dict) else ()
    for part in parts:
        found |= _unchecked(part)
    return found
