"""Purity: whether a question's code can only read the records that it is given.

Such code may be given records that later questions see too. Whatever is not certain counts as a
change: then the code gets records of its own, which costs the time of loading them.
"""

import ast
from collections import Counter
from collections.abc import Iterator

_CHANGES = frozenset(
    "add append appendleft clear difference_update discard extend extendleft insert"
    " intersection_update move_to_end pop popitem popleft remove reverse rotate setdefault sort"
    " subtract symmetric_difference_update update".split()
)
"""Methods that change a container in place."""
_REACHING = frozenset(
    "breakpoint compile delattr eval exec getattr globals input locals object open setattr super"
    " type vars".split()
)
"""Names by which code reaches more than what it mentions."""
_MODULES = frozenset(
    "calendar collections datetime decimal fractions itertools math re statistics string".split()
)
"""Modules whose functions change nothing that they are given."""
_MAKERS = frozenset("Counter Decimal defaultdict dict float int len list set sorted str".split())
"""Functions that return an object of their own."""
_NEW = (
    ast.Constant, ast.List, ast.Dict, ast.Set, ast.ListComp, ast.SetComp, ast.DictComp,
    ast.JoinedStr, ast.BinOp,
)  # fmt: skip
"""Expressions whose value is a new object, or one that can't be changed."""
_REFUSED = (
    ast.ClassDef, ast.Global, ast.Nonlocal, ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith,
    ast.Await, ast.Match,
)  # fmt: skip


def only_reads(tree: ast.Module) -> bool:
    """Return whether code changes nothing but containers that it made itself."""
    own = _own_names(tree)
    counters = own & _counters(tree)
    return all(_is_harmless(node, own, counters) for node in ast.walk(tree))


def _is_harmless(node: ast.AST, own: set[str], counters: set[str]) -> bool:
    if isinstance(node, ast.Attribute):
        loaded = isinstance(node.ctx, ast.Load) and not node.attr.startswith("_")
        return loaded and (node.attr not in _CHANGES or _is_one_of(node.value, own))
    if isinstance(node, ast.Subscript):
        return isinstance(node.ctx, ast.Load) or _is_one_of(node.value, own)
    if isinstance(node, ast.Name):
        return node.id not in _REACHING and (node.id == "_" or not node.id.startswith("_"))
    if isinstance(node, ast.AugAssign):
        # It may change the object in place: an element can be part of a record.
        is_count = isinstance(node.target, ast.Subscript) and _is_one_of(
            node.target.value, counters
        )
        return is_count or _is_one_of(node.target, own)
    if isinstance(node, ast.ImportFrom):
        return node.module in _MODULES
    brought = node.names if isinstance(node, ast.Import) else ()
    return all(one.name in _MODULES for one in brought) and not isinstance(node, _REFUSED)


def _is_one_of(node: ast.expr, names: set[str]) -> bool:
    return isinstance(node, ast.Name) and node.id in names


def _own_names(tree: ast.Module) -> set[str]:
    """Return the names that stand for nothing but objects which the code made itself."""
    bound = Counter(
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    )
    others = {
        name
        for node in ast.walk(tree)
        for name in (getattr(node, "arg", None), getattr(node, "asname", None))
        if name is not None
    }
    others |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    others |= {node.name for node in ast.walk(tree) if isinstance(node, ast.alias)}
    others |= {node.name for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler)} - {None}
    made = Counter(name for name, value in _assigned(tree) if _is_new(value))
    changed = Counter(
        node.target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name)
    )
    return {name for name, times in made.items() if times + changed[name] == bound[name]} - others


def _assigned(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Yield each name that is assigned a value by itself, with the value."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            target, value = node.target, node.value
        else:
            continue
        if isinstance(target, ast.Name):
            yield target.id, value


def _is_new(value: ast.expr) -> bool:
    if isinstance(value, ast.Call):
        return _is_one_of(value.func, set(_MAKERS))
    return isinstance(value, _NEW)


def _counters(tree: ast.Module) -> set[str]:
    """Return the names of mappings that hold nothing but what is counted in them."""
    stored = {
        target.value.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in ast.walk(node)
        if isinstance(target, ast.Subscript)
        and isinstance(target.ctx, ast.Store)
        and isinstance(target.value, ast.Name)
    }
    found = Counter(name for name, value in _assigned(tree) if _is_empty_count(value))
    every = Counter(name for name, _ in _assigned(tree))
    return {name for name, times in found.items() if times == every[name]} - stored


def _is_empty_count(value: ast.expr) -> bool:
    if isinstance(value, ast.Dict):
        return not value.keys
    if not isinstance(value, ast.Call) or value.keywords:
        return False
    if _is_one_of(value.func, {"Counter"}):
        return not value.args
    of_numbers = len(value.args) == 1 and _is_one_of(value.args[0], {"int", "float"})
    return _is_one_of(value.func, {"defaultdict"}) and of_numbers
