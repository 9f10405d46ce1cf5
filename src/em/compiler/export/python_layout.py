"""Python trees as text that reads well: double quotes, and long lines broken at their commas."""

import ast
import io
import tokenize

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
