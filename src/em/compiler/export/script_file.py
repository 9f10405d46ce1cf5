"""What an exported script holds beside its steps: the parts it needs, the functions of udf.py."""

import ast
import io
import keyword
import re
import sys
import tokenize
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from em.compiler.export.script import agents, ends, values
from em.compiler.export.script import invocation as calls
from em.compiler.export.script import main as command
from em.compiler.export.script import prompts as asking
from em.compiler.export.script import schemas as shapes
from em.errors import ExportError
from em.runner.package import UDF
from em.runner.routine import Routine, ToolStep

WIDTH = 100


def expression(node: ast.expr, indent: int, before: int, after: int = 0) -> str:
    """An expression that begins behind `before` characters and has `after` more behind it."""
    line = in_one_line(node)
    if before + len(line) + after <= WIDTH or "\n" in line:
        return line
    if isinstance(node, ast.Lambda):
        names = ast.unparse(node.args)
        begin = f"lambda {names}: " if names else "lambda: "
        return begin + expression(node.body, indent, before + len(begin), after)
    if isinstance(node, ast.ListComp) and len(node.generators) == 1:
        return _comprehension(node, indent)
    return _in_parts(node, indent) or line


def _in_parts(node: ast.expr, indent: int) -> str | None:
    """What has commas, with a line for each part."""
    inner = indent + 4
    if isinstance(node, ast.Call) and (node.args or node.keywords):
        parts = [expression(arg, inner, inner, 1) for arg in node.args]
        for keyword in node.keywords:
            begin = f"{keyword.arg}=" if keyword.arg else "**"
            parts.append(begin + expression(keyword.value, inner, inner + len(begin), 1))
        return _broken(f"{in_one_line(node.func)}(", parts, ")", indent)
    if isinstance(node, ast.Dict) and node.keys:
        parts = []
        for key, value in zip(node.keys, node.values, strict=True):
            begin = f"{in_one_line(key)}: " if key is not None else "**"
            parts.append(begin + expression(value, inner, inner + len(begin), 1))
        return _broken("{", parts, "}", indent)
    if isinstance(node, ast.List) and node.elts:
        return _broken("[", [expression(item, inner, inner, 1) for item in node.elts], "]", indent)
    if isinstance(node, ast.Tuple) and node.elts:
        return _broken("(", [expression(item, inner, inner, 1) for item in node.elts], ")", indent)
    return None


def signature(begin: str, arguments: list[str], end: str, indent: int) -> str:
    """The first line of a function, in as many lines as it takes."""
    pad, inner = " " * indent, " " * (indent + 4)
    line = f"{pad}{begin}({', '.join(arguments)}){end}"
    if len(line) <= WIDTH:
        return line
    together = f"{inner}{', '.join(arguments)}"
    if len(together) > WIDTH:
        together = "\n".join(f"{inner}{argument}," for argument in arguments)
    return f"{pad}{begin}(\n{together}\n{pad}){end}"


def _comprehension(node: ast.ListComp, indent: int) -> str:
    inner, pad = indent + 4, " " * (indent + 4)
    one = node.generators[0]
    begin = f"for {in_one_line(one.target)} in "
    lines = [expression(node.elt, inner, inner)]
    lines.append(begin + expression(one.iter, inner, inner + len(begin)))
    lines += [f"if {expression(test, inner, inner + 3)}" for test in one.ifs]
    return "[\n" + "".join(f"{pad}{line}\n" for line in lines) + " " * indent + "]"


def _broken(begin: str, parts: list[str], end: str, indent: int) -> str:
    pad = " " * (indent + 4)
    return begin + "\n" + "".join(f"{pad}{part},\n" for part in parts) + " " * indent + end


def in_one_line(node: ast.expr) -> str:
    """An expression in one line."""
    return _double_quoted(ast.unparse(ast.fix_missing_locations(node)))


def _double_quoted(source: str) -> str:
    """The same with double quotes where nothing speaks against them."""
    if "'" not in source:
        return source
    pieces: list[str] = []
    done = depth = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        kind = tokenize.tok_name[token.type]
        depth += (kind == "FSTRING_START") - (kind == "FSTRING_END")
        if kind != "STRING" or depth or token.start[0] != 1 or token.end[0] != 1:
            continue
        begin, end = token.start[1], token.end[1]
        pieces += [source[done:begin], _requoted(token.string)]
        done = end
    return "".join(pieces) + source[done:]


def _requoted(text: str) -> str:
    prefix = text[: text.index("'")] if "'" in text else text
    inside = text[len(prefix) + 1 : -1]
    if prefix in ("", "f", "b") and text.endswith("'") and '"' not in inside:
        if prefix == "f" and "'" in inside:
            return text
        return f'{prefix}"{inside.replace(chr(92) + chr(39), chr(39))}"'
    return text


_PROTOCOL = ast.parse("from typing import Protocol").body


class Parts:
    """The definitions of `em.compiler.export.script`; a script gets those that it needs."""

    def __init__(self) -> None:
        self._definitions, self._imports = _read_parts()
        self.names = frozenset(self._definitions)

    def needed_by(self, code: str, udfs: "Udfs") -> tuple[str, str]:
        """The definitions that some code refers to, with all that those need; and the imports."""
        needed: set[str] = set()
        todo = _names_in(code) & self.names
        while todo:
            needed |= todo
            found = {word for part in todo for word in _names_in(self._definitions[part])}
            todo = (found & self.names) - needed
        kept = [self._definitions[part] for part in self._definitions if part in needed]
        words = _names_in("\n".join([*kept, code]))
        return "\n\n\n".join(kept), _imports(
            [*self._imports, *_PROTOCOL, *udfs.imports], words, udfs
        )


@lru_cache(maxsize=1)
def _read_parts() -> tuple[dict[str, str], list[ast.stmt]]:
    definitions: dict[str, str] = {}
    imports: list[ast.stmt] = []
    for module in (values, ends, calls, asking, shapes, agents, command):
        source = Path(str(module.__file__)).read_text(encoding="utf-8")
        lines = source.split("\n")
        last = ""
        for node in ast.parse(source).body[1:]:
            text = "\n".join(lines[_first_line(node) - 1 : node.end_lineno])
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                definitions[last := node.name] = text
            elif isinstance(node, ast.AnnAssign):
                definitions[last := ast.unparse(node.target)] = text
            elif isinstance(node, ast.Expr):  # the text that explains a constant
                definitions[last] += f"\n{text}"
            elif not (isinstance(node, ast.ImportFrom) and str(node.module).startswith("em.")):
                imports.append(node)
    return definitions, imports


def _first_line(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def _names_in(code: str) -> set[str]:
    tree = ast.parse(code)
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _imports(nodes: Iterable[ast.stmt], words: set[str], udfs: "Udfs") -> str:
    """Import statements, each name once, only those that are used."""
    plain: set[str] = set()
    named: dict[str, set[str]] = {}
    for node in nodes:
        own = node in udfs.imports
        if isinstance(node, ast.Import):
            for alias in node.names:
                if own or (alias.asname or alias.name.partition(".")[0]) in words:
                    plain.add(ast.unparse(ast.Import([alias])))
        elif isinstance(node, ast.ImportFrom):
            used = [a for a in node.names if own or (a.asname or a.name) in words]
            module = "." * node.level + (node.module or "")
            for alias in used:
                named.setdefault(module, set()).add(
                    f"{alias.name} as {alias.asname}" if alias.asname else alias.name
                )
    froms = [f"from {module} import {', '.join(sorted(named[module]))}" for module in sorted(named)]
    future = [line for line in froms if line.startswith("from __future__")]
    rest = [line for line in froms if line not in future]
    return "\n".join([*future, *sorted(plain), *rest])


class Udfs:
    """The code of udf.py as it stands in a script: its imports apart, its functions known."""

    def __init__(self, source: str, folder: Path) -> None:
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError) as error:
            raise ExportError(f"this is no Python: {error}", place=UDF) from None
        self.imports: list[ast.stmt] = []
        self.functions: set[str] = set()
        self.coroutines: set[str] = set()
        self.names: set[str] = set()
        dropped: list[ast.stmt] = []
        for number, node in enumerate(tree.body):
            if isinstance(node, ast.Import | ast.ImportFrom):
                self._check_import(node, folder)
                self.imports.append(node)
                dropped.append(node)
            elif _is_docstring(node, number) or _is_main(node):
                dropped.append(node)
            else:
                self._note(node)
        self.code = _without(source, tree, dropped)

    def _note(self, node: ast.stmt) -> None:
        for part in ast.walk(node) if isinstance(node, ast.If | ast.Try) else [node]:
            if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
                self.functions.add(part.name)
                if isinstance(part, ast.AsyncFunctionDef):
                    self.coroutines.add(part.name)
            elif isinstance(part, ast.Assign) and isinstance(part.value, ast.Lambda):
                self.functions |= {ast.unparse(target) for target in part.targets}
            elif isinstance(part, ast.Assign | ast.AnnAssign | ast.ClassDef):
                self.names |= (
                    {part.name} if isinstance(part, ast.ClassDef) else _names_in(_targets(part))
                )
        self.functions = {word for word in self.functions if not word.startswith("_")}
        self.names |= self.functions

    def _check_import(self, node: ast.Import | ast.ImportFrom, folder: Path) -> None:
        modules = (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else ["." * node.level + (node.module or "")]
        )
        for module in modules:
            first = module.partition(".")[0]
            beside = (folder / f"{first}.py").exists() or (folder / first).is_dir()
            if first in ("", "em") or (beside and first not in sys.stdlib_module_names):
                raise ExportError(
                    f"it imports {module}, which the script would not have",
                    place=f"{UDF}:{node.lineno}",
                    fix="put what it needs into udf.py itself",
                )

    def check_names(self, taken: frozenset[str]) -> None:
        """A function of udf.py must not be called as a part of the script is."""
        imported = {
            alias.asname or alias.name
            for node in self.imports
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        for word in sorted((self.names | imported) & taken):
            raise ExportError(
                f"the script has a {word!r} of its own", place=UDF, fix="give it another name"
            )


def _targets(node: ast.Assign | ast.AnnAssign) -> str:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return " ".join(ast.unparse(target) for target in targets)


def _is_docstring(node: ast.stmt, number: int) -> bool:
    return number == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_main(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)


def _without(source: str, tree: ast.Module, dropped: list[ast.stmt]) -> str:
    """The source without these statements; its comments stay."""
    lines = source.split("\n")
    starts = [_first_line(node) for node in tree.body]
    if len(set(starts)) < len(starts):
        rest = [node for node in tree.body if node not in dropped]
        return ast.unparse(ast.Module(rest, [])) + "\n"
    for node in dropped:
        for number in range(_first_line(node) - 1, node.end_lineno or node.lineno):
            lines[number] = "\0"
    return re.sub(r"\n{4,}", "\n\n\n", "\n".join(line for line in lines if line != "\0"))


def tools_to_bring(routine: Routine) -> str:
    """The tools as the signatures that somebody must bring."""
    called: dict[str, list[ToolStep]] = {}
    for step in routine.steps:
        if isinstance(step, ToolStep):
            called.setdefault(step.tool, []).append(step)
    if not called:
        return ""
    specs = {tool.name: tool for tool in routine.tools}
    lines = ["class Tools(Protocol):", '    """What to bring: a module, an object or a mapping."""']
    for tool, steps in called.items():
        spec = specs.get(tool)
        by = steps[0].id if len(steps) == 1 else f"{len(steps)} steps"
        note = (spec.description if spec else "") or f"Called by {by}"
        note = f"{_one_line(note).rstrip('.')}."
        effect = f" It {spec.effect}s." if spec and spec.effect else ""
        names = list(dict.fromkeys(name for step in steps for name in step.args))
        if not all(_is_word(word) for word in (tool, *names)):
            lines += [
                "",
                f"    # {tool!r}({', '.join(map(repr, names))}): {note}{effect}",
            ]
            continue
        given = [
            f"{name}: Any{'' if all(name in step.args for step in steps) else ' = None'}"
            for name in names
        ]
        star = ["*"] if given else []
        lines += ["", signature(f"def {tool}", ["self", *star, *given], " -> Any:", 4)]
        lines.append(f'        """{note}{effect}"""')
    first_steps = ast.Dict(
        [ast.Constant(tool) for tool in called],
        [ast.Constant(steps[0].id) for steps in called.values()],
    )
    return "\n".join([*lines, "", "", f"TOOLS = {expression(first_steps, 0, 8)}"])


def _is_word(text: str) -> bool:
    return text.isidentifier() and text.isascii() and not keyword.iskeyword(text)


def _one_line(text: str) -> str:
    shown = "".join(char if char.isprintable() else " " for char in text)
    return " ".join(shown.replace("\\", "\\\\").replace('"', "'").split())
