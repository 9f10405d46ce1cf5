"""A routine as one Python script that needs its tools, but not em.

A script has the steps as plain Python, the functions of udf.py, and a copy of `script`, on which
both run. It can do what `em compile` writes: calls, prompts, asserts and a return, with references,
texts and functions. Anything else is an `ExportError` that names the step and the construct.

Where the routine would ask or refuse, so does the script: it has a copy of `em.runner.agreement`,
which decides that, with `stand_ins` for what agreement imports.
"""

import ast
import copy
import inspect
import keyword
import math
import re
import symtable
import sys
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, Union

import msgspec

from em.compiler.checks import is_plain
from em.compiler.export import script, stand_ins
from em.compiler.export.plain import plain_script
from em.compiler.result_facts import RESULT
from em.errors import ExportError
from em.runner import agreement, mentions, wording
from em.runner import signs as signs_of_requests
from em.runner.authorship import runs_in_sandbox
from em.runner.expressions import file_lines, functions, selection, words
from em.runner.expressions.functions import FUNCTIONS
from em.runner.expressions.language import (
    GIVEN,
    lexed,
    parse_reference,
    syntax_of,
    whole_expression,
)
from em.runner.expressions.texts import TEXTS
from em.runner.expressions.words import check_in_words, left_of
from em.runner.package import UDF, Package
from em.runner.public_form import description_of
from em.runner.routine import (
    AssertStep,
    CompiledStep,
    Default,
    ForEachStep,
    LetStep,
    PlanStep,
    PromptStep,
    ReturnStep,
    Routine,
    RulesStep,
    Step,
    ToolStep,
    UdfStep,
)
from em.runner.tools import one_line
from em.text import contractions, courtesies
from em.values import syntax_tree
from em.values.canonical import Json, same
from em.values.files import read_file
from em.values.json_schema import closed, examples_of
from em.values.leaves import texts as texts_of
from em.values.syntax_tree import expression_of, module_of

WIDTH = 100
NEEDS_RUNNER: Json = {
    "when": None, "for_each": None, "within": None, "parallel": 1, "retry": None, "timeout": None,
    "checks": None, "idempotency_key": None, "expect": None,
}  # fmt: skip
"""Fields of steps that a script can't do, with their defaults."""
FIELD_TYPES = ("text", "confirm", "json")
KNOWN = "known"
"""The variable of a script that must settle something: it holds all values by name."""
SIGNATURE = "def run(input: Any, tools: Any, answers: Any = None) -> Any:"


class Section(NamedTuple):
    """What a script offers to other code: constants, functions, their names and how to use them."""

    constants: Json
    code: str
    names: Sequence[str]
    usage: str


def export_python(
    package: Package,
    *,
    trust: bool = False,
    section: Section | None = None,
    routine: Routine | None = None,
) -> str:
    """Return a script that does what `em run --no-journal` does with this routine.

    A script has no sandbox: functions that a model wrote are refused unless a person has read them.
    routine: another form of the routine of the package, which the script is made of.
    """
    path = package.folder / UDF
    code = read_file(path, ExportError) if path.exists() else b""
    if runs_in_sandbox(path, code) and not trust:
        raise ExportError(
            "a model wrote these functions and nobody has read them: a script has no sandbox",
            place=str(path),
            fix="read them and run `em trust`, or export with --trust",
        )
    try:
        source = code.decode()
    except UnicodeDecodeError as error:
        raise ExportError(f"the file must be UTF-8: {error}", place=str(path)) from None
    section = section or Section({}, "", (), "")
    chosen = routine or package.routine
    if is_plain(chosen):
        about = _doc(_about(chosen, section.usage, _PLAIN_LIMITS), "")
        return plain_script(
            chosen, about=about, udfs=source, constants=section.constants, code=section.code
        )
    return _Script(chosen, _Source(source, path), section).text()


def is_word(word: str) -> bool:
    """Return whether Python can use a text as a name."""
    plain = word.isidentifier() and word.isascii() and not word.startswith("__")
    return plain and not keyword.iskeyword(word)


def _calls_of(step: Step) -> Iterator[tuple[str, Iterable[str]]]:
    """Yield the tools that a step calls, with the names of their arguments."""
    if isinstance(step, ToolStep):
        yield step.tool, step.args
    elif isinstance(step, PlanStep):
        for reads in step.reads.values():
            yield from ((read.tool, read.args) for read in reads)
        yield from ((effect.tool, effect.slots) for effect in step.effects.values())
    elif isinstance(step, RulesStep):
        for look in step.looks.values():
            yield look.tool, [*look.args, *([look.by] if look.by else [])]
        for rule in step.rules.values():
            yield from ((call.tool, call.args) for call in rule.calls)


def signatures(routine: Routine) -> list[str]:
    """Return the tools that a routine calls as signatures of the functions to bring."""
    about = {tool.name: one_line(tool.description, 300) for tool in routine.tools}
    names: dict[str, dict[str, None]] = {}
    for step in routine.all_steps:
        for tool, args in _calls_of(step):
            names.setdefault(tool, {}).update(dict.fromkeys(args))
    lines = []
    for tool, args in names.items():
        note = f"  # {about[tool]}" if about.get(tool) else ""
        if all(is_word(word) for word in (tool, *args)):
            given = f"*, {', '.join(args)}" if args else ""
            lines.append(f"def {tool}({given}): ...{note}")
        else:
            lines.append(f"# {one_line(f'{tool}({list(args)})', 300)}{note}")
    return lines


def _refused(construct: str, place: str) -> ExportError:
    return ExportError(
        f"an exported script can't do this: {construct}",
        place=place,
        fix="run the routine with `em run`, or move this into a function of udf.py",
    )


_LIMITS = (
    "It has no journal: what stops it says which effects were made, and a run that made one must"
    " not be started again. What is asked after an effect must be answered before the run, or on a"
    " terminal. Of its schemas it checks types, names and options."
)
_PLAIN_LIMITS = (
    "Where something is not as it was recorded it hands over (HandedOver) before its first effect,"
    " and nothing was done: do the task without it then. It has no journal: what stops it later"
    " says which effects were made, and such a run must not be started again."
)


def _about(routine: Routine, usage: str, limits: str) -> str:
    """Return the docstring of a script."""
    about = f"{routine.name}: a routine as a script, written by `em export`.\n\n"
    about += "It needs Python 3.11 or newer and its tools, not em:\n\n"
    about += "    python THIS_FILE --input input.json --tools my_tools.py\n\n"
    if tools := signatures(routine):
        about += "Tools to bring, in a module, an object or a mapping:\n\n"
        about += "".join(f"    {line}\n" for line in tools) + "\n"
    if usage:
        about += f"As a tool of an agent:\n\n{usage}\n\n"
    return about + limits


# --- code and its layout --------------------------------------------------------------------------


class Group(NamedTuple):
    """Code in brackets: parts with their labels, each on a line of its own where it gets long."""

    begin: str
    parts: Sequence[tuple[str, "Code"]]
    end: str


Code = Union[str, Group]  # noqa: UP007 - `|` does not take the name of a class as a text


def _flat(code: Code) -> str:
    if isinstance(code, str):
        return code
    return code.begin + ", ".join(label + _flat(part) for label, part in code.parts) + code.end


def _laid(code: Code, indent: int, used: int) -> str:
    """Lay out code on a line where `used` columns are taken already."""
    line = _flat(code)
    if isinstance(code, str) or not code.parts or used + len(line) <= WIDTH:
        return line
    pad = " " * (indent + 4)
    parts = (label + _laid(part, indent + 4, indent + 5 + len(label)) for label, part in code.parts)
    return "".join([code.begin, "\n", *(f"{pad}{part},\n" for part in parts), pad[4:], code.end])


def _line(depth: int, begin: str, code: Code = "") -> str:
    indent = 4 * depth
    return " " * indent + begin + _laid(code, indent, indent + len(begin))


def _called(function: str, *args: Code) -> Group:
    return Group(f"{function}(", [("", arg) for arg in args], ")")


def _quoted(text: str) -> str:
    """Return a text as a literal, in double quotes where that needs no more escapes."""
    shown = repr(text)
    if shown[0] == '"' or '"' in text:
        return shown
    return '"' + shown[1:-1].replace("\\'", "'") + '"'


def _literal(value: Any, place: str, text: Callable[[str], Code] = _quoted) -> Code:
    """Return a JSON value as code; `text` translates the texts in it."""
    if isinstance(value, str):
        return text(value)
    if isinstance(value, dict):
        pairs = value.items()
        parts = [(f"{_literal(key, place)}: ", _literal(v, place, text)) for key, v in pairs]
        return Group("{", parts, "}")
    if isinstance(value, list | tuple):
        return Group("[", [("", _literal(item, place, text)) for item in value], "]")
    if isinstance(value, float) and not math.isfinite(value):
        raise _refused(f"the number {value!r}", place)
    return repr(value)


# --- expressions ----------------------------------------------------------------------------------

WORDS = {"true": "True", "false": "False", "none": "None"}
WORDS |= {word: word for word in "True False None and or not in is if else".split()}
SIGNS = frozenset(", ( ) [ ] { } : = == != < <= > >= + - * / //".split())
"""Words and signs that mean the same in Jinja and in Python."""
METHODS = {"upper": "upper", "lower": "lower", "trim": "strip"}
"""Filters that are a method of the text."""
Tokens = list[tuple[str, str]]


class _Expressions:
    """Translates the expressions of one field of a step.

    Jinja checks the syntax and splits the tokens. What a script can do is written alike in Jinja
    and in Python, but for names, `a.b`, tests and filters. `own` are names of the field itself.
    """

    def __init__(self, script: "_Script", place: str, own: Collection[str] = ()) -> None:
        self._script, self._place, self._own = script, place, own
        self._strings: list[str] = []

    def value(self, value: Any) -> Code:
        """Translate a value; every text in it may hold expressions."""
        return _literal(value, self._place, self._text)

    def bare(self, source: str) -> str:
        """Translate an expression that stands by itself."""
        syntax_of(source, self._place, bare=True)
        tokens = lexed(f"{{{{ {source} }}}}", self._place)[1:-1]
        return self._expression(
            [(kind, signs) for _, kind, signs in tokens if kind != "whitespace"]
        )

    def _text(self, text: str) -> Code:
        if "{{" not in text and "{%" not in text:
            return _quoted(text)
        whole = whole_expression(text)
        if whole is not None:
            return self.bare(whole)
        syntax_of(text, self._place)
        parts: list[str] = []
        constant, inside = "", Tokens()
        for _, kind, signs in lexed(text, self._place):
            if kind in ("block_begin", "raw_begin"):
                raise _refused("{% … %} in a text", self._place)
            if kind == "data":
                constant += signs
            elif kind == "variable_begin":
                inside = []
            elif kind != "variable_end":
                inside += [(kind, signs)] * (kind != "whitespace")
            elif [found for found, _ in inside] == ["string"]:
                constant += self._unquoted(inside[0][1])
            else:
                parts += [_quoted(constant)] * bool(constant) + [self._expression(inside)]
                constant = ""
        if not parts:
            return _quoted(constant)
        return _called("as_text", *parts, *[_quoted(constant)] * bool(constant))

    def _expression(self, tokens: Tokens) -> str:
        bar = ("operator", "|")
        if bar in tokens:
            return self._filtered(tokens[: tokens.index(bar)], tokens[tokens.index(bar) + 1 :])
        self._strings = []
        words = [self._word(tokens, number) for number in range(len(tokens))]
        try:
            plain = ast.unparse(expression_of(" ".join(words)))
        except SyntaxError:
            raise _refused(" ".join(signs for _, signs in tokens), self._place) from None
        return re.sub(r"__string_(\d+)", lambda found: self._strings[int(found[1])], plain)

    def _unquoted(self, signs: str) -> str:
        try:
            return str(ast.literal_eval(signs))
        except SyntaxError:
            raise _refused(f"the text {signs}", self._place) from None

    def _word(self, tokens: Tokens, number: int) -> str:
        """Translate one token."""
        kind, signs = tokens[number]
        before = [signs for _, signs in tokens[max(0, number - 2) : number]]
        after = tokens[number + 1][1] if number + 1 < len(tokens) else ""
        if before[-1:] == ["."]:
            if after == "(" or kind != "name":
                raise _refused(f"the {'method' if after == '(' else 'part'} {signs!r}", self._place)
            return f"[{self._string(signs)}]"
        if kind == "string":
            return self._string(self._unquoted(signs))
        if kind == "name":
            is_test = before[-1:] == ["is"] or before == ["is", "not"]
            if is_test and signs not in ("not", "none", "None"):
                raise _refused(f"the test {signs!r}", self._place)
            if signs in WORDS or after == "=":
                return WORDS.get(signs, signs)
            return self._function(signs) if after == "(" else self._name(signs)
        if kind == "operator" and signs not in SIGNS | {"."}:
            raise _refused(f"the operator {signs}", self._place)
        return "" if signs == "." else signs

    def _string(self, text: str) -> str:
        """Return a name that stands for a text until the expression is laid out."""
        self._strings.append(_quoted(text))
        return f"__string_{len(self._strings) - 1}"

    def _name(self, word: str) -> str:
        if word in self._own:
            return word
        if self._script.is_settling:
            return f"{KNOWN}[{self._string(word)}]"
        variable, may_be_missing = self._script.variable(word)
        return f"have({variable}, {self._string(word)})" if may_be_missing else variable

    def _function(self, word: str) -> str:
        known = self._script.udfs.functions | FUNCTIONS.keys() - {"zip", "enumerate", *TEXTS}
        if word not in known:
            raise _refused(f"the function {word!r}", self._place)
        return f"awaited({word})" if word in self._script.udfs.coroutines else word

    def _filtered(self, tokens: Tokens, words: Tokens) -> str:
        """Translate `reference | upper` and the like, and `name | default(value)`."""
        source, name = "".join(signs for _, signs in tokens), words[0][1]
        reference = parse_reference(source)
        if reference is not None and name in METHODS and len(words) == 1:
            return f"str({self._expression(tokens)}).{METHODS[name]}()"
        if reference == (source, ()) and name == "default" and ("operator", "|") not in words:
            other = self._expression(words[2:-1])
            given = f"{KNOWN}.get({_quoted(source)}, MISSING)"
            if not self._script.is_settling:
                given = self._script.variable(source)[0]
            return f"default_to({given}, {other})"
        raise _refused(f"the filter {name!r}", self._place)


# --- the script -----------------------------------------------------------------------------------


class _Script:
    def __init__(self, routine: Routine, udfs: "_Source", section: Section) -> None:
        self._routine, self.udfs, self._section = routine, udfs, section
        calls = [step for step in routine.steps if isinstance(step, ToolStep | UdfStep)]
        self._asks = bool(routine.asks or routine.request)
        self._settled = {step.id: step for step in calls if self._requires(step)}
        self.is_settling = bool(self._settled)
        self._runtime = _runtime(is_settling=self.is_settling)
        taken = {"input", "tools", "answers", "output", "run", "TOOLS", *self._runtime.names}
        taken |= {"INPUT_SCHEMA", "OUTPUT_SCHEMA", "made", *section.names, *section.constants}
        # Where nothing has an effect, nothing has to be told about it.
        self._made = ", made" if any(map(self._writes, calls)) else ""
        if self.is_settling:
            taken |= {
                KNOWN,
                "settled",
                "terms",
                "contract",
                "asking",
                "answer",
                "REQUEST",
                "ASKS",
                "TERMS",
            }
        imported = {*self._runtime.imports.values()}
        for word in sorted((udfs.names - (imported & {*udfs.imports.values()})) & taken):
            problem = f"the script has a {word!r} of its own"
            raise ExportError(problem, place=UDF, fix="give it another name")
        self._reserved = taken | FUNCTIONS.keys() | udfs.names
        self._variables: dict[str, str] = {}
        self._secrets = {secret.name: secret.variable for secret in routine.secrets}
        self._required = set((routine.input_schema or {}).get("required") or ())

    def _requires(self, step: ToolStep | UdfStep) -> bool:
        """Return whether something must be settled before a call."""
        return bool(self._asks or step.agree or step.guards)

    def text(self) -> str:
        """Return the whole script."""
        about = description_of(self._routine) or f"Run {self._routine.name}."
        body = f"{SIGNATURE}\n{_doc(about, '    ')}" + "\n".join(self._body())
        constants = self._constants()
        main = 'if __name__ == "__main__":\n    main(run, (__doc__ or "").partition("\\n")[0])'
        own = "\n\n".join([constants, self.udfs.code, body, self._section.code, main])
        used = self._runtime.reduced_to(own)
        head = _doc(_about(self._routine, self._section.usage, _LIMITS), "")
        parts = [
            f"{head}\n{_imports(used, self.udfs)}\n\n{constants}",
            self.udfs.code,
            body,
            self._section.code,
            "# The rest does for the steps above what em's runner does.",
            used.code,
            main,
        ]
        script = "\n\n\n".join(part.strip("\n") for part in parts if part.strip()) + "\n"
        module_of(script)
        return script

    def _constants(self) -> str:
        named = {
            "INPUT_SCHEMA": self._routine.input_schema and closed(self._routine.input_schema),
            "OUTPUT_SCHEMA": self._routine.output_schema,
            **self._section.constants,
        }
        lines = [
            _line(0, f"{word}: dict[str, Any] = ", _literal(value, word.lower()))
            for word, value in named.items()
            if value is not None
        ]
        tools = self._first_steps()
        lines += [_line(0, "TOOLS = ", _literal(tools, ""))] * bool(tools)
        return "\n".join([*lines, *self._terms()])

    def _terms(self) -> list[str]:
        """Return what must be settled before calls, as constants."""
        if not self.is_settling:
            return []
        routine = self._routine
        request, asks = msgspec.to_builtins(routine.request), msgspec.to_builtins(routine.asks)
        asks = {
            name: {"candidates": [], "is_unused": False, "others": [], "found": [], **asked}
            for name, asked in asks.items()
        }
        if request is not None:
            request = {"decides": False, "between": {}, "each": {}, "closed": [], **request}
        terms = {
            step.id: [
                step.args,
                step.agree,
                list(step.guards),
                self._may_write(step),
                *([[], None, dict(step.reasons)] if step.reasons else []),
            ]
            for step in self._settled.values()
        }
        named = {"REQUEST": request, "ASKS": asks, "SEEN": routine.seen, "TERMS": terms}
        return [
            *(_line(0, f"{word}: Any = ", _literal(value, word)) for word, value in named.items()),
            _line(0, "EXPRESSIONS: Any = ", self._lambdas(self._expressions())),
            _line(0, "TEXTS: Any = ", self._lambdas(self._texts())),
        ]

    def _lambdas(self, codes: dict[str, Code]) -> Group:
        parts = [(f"{_quoted(text)}: lambda {KNOWN}: ", code) for text, code in codes.items()]
        return Group("{", parts, "}")

    def _expressions(self) -> dict[str, Code]:
        """Return every expression that agreement may evaluate, as code."""
        found: dict[str, Code] = {}
        for step in self._settled.values():
            for place, texts in step.agree.items():
                terms = self._in(step, f"agree.{place}")
                found |= {text: terms.bare(text) for text in texts}
            terms = self._in(step, "guards")
            for text in step.guards:
                found |= {one: terms.bare(one) for one in (text, left_of(text))}
        for name, asked in self._routine.asks.items():
            terms = _Expressions(self, f"asks.{name}.candidates")
            found |= {text: terms.bare(text) for text in (*asked.candidates, *asked.found)}
        return found

    def _texts(self) -> dict[str, Code]:
        """Return the texts of arguments that are computed, as code."""
        found: dict[str, Code] = {}
        for step in self._settled.values():
            terms = self._in(step, "args")
            for text in texts_of(step.args):
                if "{{" in text or "{%" in text:
                    found[text] = terms.value(text)
        return found

    def _first_steps(self) -> dict[str, str]:
        """Return for each tool the first step that calls it."""
        calls = [step for step in self._routine.steps if isinstance(step, ToolStep)]
        return {step.tool: step.id for step in reversed(calls)}

    def variable(self, word: str) -> tuple[str, bool]:
        """Return the variable that holds a name's value here, and whether it may be missing."""
        if word in self._saved or word in self._secrets:
            return self._python(word), False
        self._inputs[word] = None
        return self._python(word), word not in self._required

    def _python(self, word: str) -> str:
        """Return what a name of the routine is called in the script."""
        if word not in self._variables:
            free = word if is_word(word) else "value"
            while free in self._reserved or free in self._variables.values():
                free += "_"
            self._variables[word] = free
        return self._variables[word]

    def _body(self) -> list[str]:
        """Return the lines of `run`."""
        self._saved: set[str] = set()
        self._inputs: dict[str, None] = {}
        lines = []
        for step in self._routine.steps:
            begin = f"with step({_quoted(step.id)}{self._made}):"
            lines += ["", _line(1, begin), *self._step(step)]
            if isinstance(step, ReturnStep):
                break
        else:
            lines += ["", _line(1, f'with step(""{self._made}):'), *self._return("None", 2)]
        head = [*self._head(), *self._effects()]
        return [*head, *lines] if head else lines[1:]

    def _effects(self) -> list[str]:
        """Return the lines that get answers before the first effect, and remember effects."""
        if not self._made:
            return []
        steps = list(self._routine.steps)
        first = next(number for number, step in enumerate(steps) if self._writes(step))
        later = [
            [step.id, step.prompt.message, msgspec.to_builtins(step.prompt).get("fields") or []]
            for step in steps[first:]
            if isinstance(step, PromptStep)
        ]
        lines = []
        if later:
            prompts = _literal(later, "prompt")
            lines.append(_line(1, "", _called("ahead", "answers", prompts)))
        return [*lines, _line(1, "made: list[str] = []")]

    def _writes(self, step: Step) -> bool:
        spec = next((tool for tool in self._routine.tools if tool.name == _target(step)), None)
        return CompiledStep(step, spec).is_write

    def _head(self) -> list[str]:
        """Return the lines that check the input and bind inputs, secrets and tools."""
        if self.is_settling:
            return self._settling_head()
        lines = []
        if self._routine.input_schema is not None:
            lines.append(_line(1, 'check_shape(INPUT_SCHEMA, input, "input")'))
        if self._first_steps():
            lines.append(_line(1, "tools = bring(tools, TOOLS)"))
        for word, variable in self._secrets.items():
            value = _called("secret", _quoted(word), _quoted(variable))
            lines.append(_line(1, f"{self._python(word)} = ", value))
        for word in self._inputs:
            given = f"input[{_quoted(word)}]"
            if word not in self._required:
                given = f"input.get({_quoted(word)}, MISSING)"
            lines.append(_line(1, f"{self._python(word)} = {given}"))
        return lines

    def _settling_head(self) -> list[str]:
        """Return the same lines for a routine that may ask or refuse."""
        schema = "None" if self._routine.input_schema is None else "INPUT_SCHEMA"
        saved = [step.save_as for step in self._routine.steps]
        lines = [
            _line(1, "terms = {name: Terms(name, *required) for name, required in TERMS.items()}"),
            _line(1, f"asking = asking_for(REQUEST, ASKS, SEEN, {schema})"),
            _line(1, f"answer = answering(answers, {schema})"),
            _line(1, f"contract = Contract(asking, list(terms.values()), {saved})"),
            _line(1, "settled = Agreement(contract, answer)"),
            _line(1, 'with step(""):'),
            _line(2, "input = settled.inputs(input)"),
        ]
        if schema != "None":
            lines.append(_line(1, 'check_shape(INPUT_SCHEMA, input, "input")'))
        if self._first_steps():
            lines.append(_line(1, "tools = bring(tools, TOOLS)"))
        lines.append(_line(1, f"{KNOWN} = Known(input)"))
        for word, variable in self._secrets.items():
            value = _called("secret", _quoted(word), _quoted(variable))
            lines.append(_line(1, f"{KNOWN}[{_quoted(word)}] = ", value))
        lines.append(_line(1, f'settled.learn(["", *input], {KNOWN})'))
        return lines

    def _step(self, step: Step) -> list[str]:
        unset = {**NEEDS_RUNNER, **({"on_error": "fail"} if isinstance(step, AssertStep) else {})}
        for field, default in unset.items():
            if getattr(step, field) != default:
                raise _refused(f"`{field}`", f"step {step.id}, field {field}")
        about = " ".join(_printable(step.description).split())
        lines = [f"        # {line}" for line in textwrap.wrap(about, WIDTH - 10)]
        if isinstance(step, ReturnStep):
            return [*lines, *self._return(self._in(step, "value").value(step.value), 2)]
        if isinstance(step, AssertStep):
            holds = self._in(step, "check").bare(step.check)
            message = self._in(step, "message").value(step.message)
            ensure = Group("ensure(", [("", holds), ("lambda: ", message)], ")")
            lines.append(_line(2, self._save(step), ensure))
        elif isinstance(step, PromptStep):
            lines.append(self._prompt(step))
        elif isinstance(step, PlanStep | RulesStep | LetStep | ForEachStep):
            raise ExportError(
                f"a script has no code for `{step.__struct_config__.tag}` steps",
                place=f"step {step.id}",
                fix="export it as a skill, which runs it with em (`--to skill`), serve it to agents"
                " with `em mcp`, or run it with `em run`",
            )
        else:
            lines += self._settle(step)
            lines.append(self._call(step))
            if self._writes(step):
                lines.append(_line(2, f"made.append({_quoted(step.id)})"))
        if self.is_settling and step.save_as is not None:
            lines.append(_line(2, f"settled.learn([{_quoted(step.save_as)}], {KNOWN})"))
        return lines

    def _settle(self, step: ToolStep | UdfStep) -> list[str]:
        """Return the line that settles what a call requires."""
        if step.id not in self._settled:
            return []
        writes = self._may_write(step)
        return [_line(2, f"settled.settle(terms[{_quoted(step.id)}], {KNOWN}, writes={writes})")]

    def _may_write(self, step: ToolStep | UdfStep) -> bool:
        return isinstance(step, ToolStep) and self._writes(step)

    def _in(self, step: Step, field: str) -> _Expressions:
        return _Expressions(self, f"step {step.id}, field {field}")

    def _save(self, step: Step) -> str:
        """Return the beginning of the assignment of a step's result."""
        if step.save_as is None:
            return ""
        if self.is_settling:
            return f"{KNOWN}[{_quoted(step.save_as)}] = "
        self._saved.add(step.save_as)
        return f"{self._python(step.save_as)} = "

    def _return(self, value: Code, depth: int) -> list[str]:
        if self._routine.output_schema is None:
            return [_line(depth, "return ", value)]
        check = _line(depth, 'check_shape(OUTPUT_SCHEMA, output, "output")')
        return [_line(depth, "output = ", value), check, _line(depth, "return output")]

    def _prompt(self, step: PromptStep) -> str:
        for field in step.prompt.fields:
            if field.type not in FIELD_TYPES:
                construct = f"the field {field.name!r} of type {field.type}"
                raise _refused(construct, f"step {step.id}, field prompt")
        prompt = msgspec.to_builtins(step.prompt)
        terms = self._in(step, "prompt")
        message, fields = terms.value(prompt["message"]), terms.value(prompt.get("fields") or [])
        asked = _called("ask", _quoted(step.id), message, fields, "answers or {}")
        return _line(2, self._save(step), asked)

    def _call(self, step: ToolStep | UdfStep) -> str:
        place = f"step {step.id}, field function"
        if isinstance(step, ToolStep):
            plain = is_word(step.tool)
            target = f"tools.{step.tool}" if plain else f"getattr(tools, {_quoted(step.tool)})"
        elif step.function in self.udfs.functions:
            own = step.function
            target = f"awaited({own})" if own in self.udfs.coroutines else own
        else:
            raise ExportError(f"there is no function {step.function!r} in {UDF}", place=place)
        terms = self._in(step, "args")
        args = {key: terms.value(value) for key, value in step.args.items()}
        parts = [(f"{key}=", value) for key, value in args.items() if is_word(key)]
        odd = [(f"{_quoted(key)}: ", value) for key, value in args.items() if not is_word(key)]
        parts += [("**", Group("{", odd, "}"))] * bool(odd)
        given: Code = Group("{", [(f"{_quoted(key)}: ", one) for key, one in args.items()], "}")
        if step.agree:
            answered = f"settled.settled.get({_quoted(step.id)}, {{}})"
            given = _called("with_answers", given, answered)
            parts = [("**", given)]
        call = self._expected(step, Group(f"{target}(", parts, ")"), target, given)
        if step.on_error != "fail":
            default = step.on_error.default if isinstance(step.on_error, Default) else None
            otherwise = _literal(default, f"step {step.id}, field on_error")
            call = Group("attempt(", [("lambda: ", call), ("", otherwise)], ")")
        return _line(2, self._save(step), call)

    def _expected(self, step: ToolStep | UdfStep, call: Code, target: str, given: Code) -> Code:
        """Return a call with what it must return. target, given: its function and arguments."""
        if not step.expects:
            return call
        needs_given = any(GIVEN in agreement.names_in_expression(text) for text in step.expects)
        own = [RESULT, GIVEN] if needs_given else [RESULT]
        terms = _Expressions(self, f"step {step.id}, field expects", own)
        head = f"lambda {', '.join(own)}: "
        checks: list[tuple[str, Code]] = []
        for text in step.expects:
            words: tuple[str, Code] = ("", _quoted(check_in_words(text)))
            checks.append(("", Group("(", [words, (head, terms.bare(text))], ")")))
        if needs_given:
            return Group("expected_of(", [("", target), ("", given), *checks], ")")
        return Group("expected(", [("", call), *checks], ")")


def _target(step: Step) -> str:
    return step.tool if isinstance(step, ToolStep) else ""


# --- the file -------------------------------------------------------------------------------------


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() or char == "\n" else " " for char in text)


def _doc(text: str, pad: str) -> str:
    """Return a docstring that holds a text, whatever it is."""
    safe = _printable(text).replace("\\", "\\\\").replace('"""', "'''").strip()
    lines: list[str] = []
    for line in safe.split("\n"):
        wrapped = textwrap.wrap(line, WIDTH - 6 - len(pad)) or [""]
        lines += [line] if line.startswith("    ") else wrapped
    if len(lines) == 1 and not lines[0].endswith('"'):
        return f'{pad}"""{lines[0]}"""\n'
    body = "\n".join(f"{pad}{line}".rstrip() for line in lines[1:])
    return f'{pad}"""{lines[0]}\n{body}\n{pad}"""\n'


class _Source:
    """A Python file taken apart: its imports, its names, and the code that is left.

    The docstring and what runs under `if __name__ == "__main__"` are left out.
    """

    def __init__(self, source: str, path: Path) -> None:
        try:
            tree = module_of(source)
            symbols = symtable.symtable(source, str(path), "exec").get_symbols()
        except (SyntaxError, ValueError) as error:
            raise ExportError(f"the file must be Python: {error}", place=str(path)) from None
        self.imports: dict[str, str] = {}
        """The names that it imports, by the line that imports each."""
        dropped = tree.body[:1] if ast.get_docstring(tree) is not None else []
        for node in tree.body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                self._import(node, path)
                dropped.append(node)
            elif isinstance(node, ast.If) and "__name__" in ast.unparse(node.test):
                dropped.append(node)
        bound = [word for word in symbols if word.is_assigned() or word.is_imported()]
        self.names = {word.get_name() for word in bound}
        self.functions = {word for word in self.names if not word.startswith("_")}
        self.coroutines = {n.name for n in ast.walk(tree) if isinstance(n, ast.AsyncFunctionDef)}
        self.code = _without(source, tree, dropped)

    def reduced_to(self, code: str) -> "_Source":
        """Return the part that some code needs, directly or not, without what it defines itself."""
        tree, statements = self._statements
        own = module_of(code)
        defined = {word for node in own.body for word in bound(node)}
        todo = _used(own) - defined
        kept: set[str] = set()
        while todo:
            kept |= todo
            needed = [used for _, defines, used in statements if todo.intersection(defines)]
            todo = set().union(*needed) - kept - defined
        dropped, is_kept = [], True
        for node, defines, _ in statements:
            # A text below a definition describes it.
            is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            is_kept = is_kept if is_text else bool(kept.intersection(defines) - defined)
            if not is_kept:
                dropped.append(node)
        reduced = copy.copy(self)
        del reduced._statements  # they are of the whole code
        reduced.imports = {line: word for line, word in self.imports.items() if word in kept}
        reduced.code = _without(self.code, tree, dropped)
        return reduced

    @cached_property
    def _statements(self) -> tuple[ast.Module, list[tuple[ast.stmt, set[str], set[str]]]]:
        """The code's tree, and its statements with the names that each defines and uses."""
        tree = module_of(self.code)
        return tree, [(node, bound(node), _used(node)) for node in tree.body]

    def _import(self, node: ast.Import | ast.ImportFrom, path: Path) -> None:
        for alias in node.names:
            module, one = alias.name, ast.unparse(ast.Import([alias]))
            if isinstance(node, ast.ImportFrom):
                module = "." * node.level + (node.module or "")
                one = ast.unparse(ast.ImportFrom(node.module, [alias], node.level))
            self.imports[one] = alias.asname or alias.name.partition(".")[0]
            first = module.partition(".")[0]
            beside = path.with_name(f"{first}.py").exists() or (path.parent / first).is_dir()
            if first in ("", "em") or (beside and first not in sys.stdlib_module_names):
                raise ExportError(
                    f"it imports {module}, which the script would not have",
                    place=f"{path}:{node.lineno}",
                    fix=f"put what it needs into {path.name} itself",
                )


def bound(node: ast.stmt) -> set[str]:
    """Return the names that a statement of a module defines."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign):
        targets = [node.target]
    return {one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}


def _used(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


@lru_cache(maxsize=2)
def _runtime(*, is_settling: bool) -> _Source:
    """Return the code that scripts run on: `script`, functions of expressions, and agreement."""
    learnt = [contractions, courtesies, mentions, signs_of_requests, agreement, wording]
    settling = [stand_ins, words, syntax_tree, *learnt] if is_settling else []
    modules = [script, selection, file_lines, functions, *settling]
    shared: list[Callable[..., Any]] = [same, examples_of] if is_settling else [same]
    # The functions of texts need more of em than a script has: it is not written with them.
    parts = ["TEXTS: dict[str, Any] = {}", *(inspect.getsource(one) for one in shared)]
    parts += map(_without_em, modules)
    return _Source("\n\n".join(parts), Path(str(script.__file__)))


def _without_em(module: ModuleType) -> str:
    """Return the source of one of em's modules without what it imports from em."""
    source = inspect.getsource(module)
    tree = module_of(source)
    own = [
        node
        for node in ast.walk(tree)
        if (isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "em")
    ]
    return _without(source, tree, [*tree.body[:1], *own])


def _imports(runtime: _Source, udfs: _Source) -> str:
    """Return the imports of both, in the order that linters expect.

    A name that udf.py takes from `typing` and the runtime from `collections.abc` is imported once;
    any other name must be the same in both.
    """
    lines = dict(udfs.imports)
    for line, word in runtime.imports.items():
        plain = line.startswith("import ")
        others = [own for own, bound in udfs.imports.items() if bound == word and own != line]
        if all(plain and own.startswith("import ") and " as " not in own for own in others):
            lines[line] = word
        elif not others[0].startswith("from typing import "):
            fix = f"use the import that the script has: {line}"
            raise ExportError(f"the script has a {word!r} of its own", place=UDF, fix=fix)
    modules: dict[str, set[str]] = {}
    for line in lines:
        module, _, names = line.partition(" import ")
        modules.setdefault(module, set()).add(names)
    order = sorted(modules, key=lambda line: ("__future__" not in line, line[:4] == "from", line))
    return "\n".join(
        f"{module} import {', '.join(sorted(modules[module]))}".removesuffix(" import ")
        for module in order
    )


def _without(source: str, tree: ast.Module, dropped: Sequence[ast.stmt]) -> str:
    """Return a source without some of its statements; its comments stay."""
    if len({node.lineno for node in tree.body}) < len(tree.body):  # several on one line
        return ast.unparse(ast.Module([node for node in tree.body if node not in dropped], []))
    lines = source.split("\n")
    for node in dropped:
        decorators = getattr(node, "decorator_list", ())
        first = min([node.lineno, *(one.lineno for one in decorators)])
        lines[first - 1 : node.end_lineno] = [""] * ((node.end_lineno or 0) - first + 1)
    return re.sub(r"\n{4,}", "\n\n\n", "\n".join(lines)).strip("\n")
