"""Names that types, fields and collections can't have, derived from the code that uses them.

A class must not hide what the generated code needs, and a collection no attribute of State. They
are read from that code itself, so a new attribute or helper is reserved from the day it is there.
"""

import ast
import builtins
from functools import lru_cache
from typing import Any, cast

from em.state.code import write_module, write_sandbox_code
from em.state.questions import CALL
from em.state.schema import PROFILE, Constraint, FieldSchema, StateSchema, TypeSchema
from em.state.state import State
from em.state.types import fold_column
from em.store.protocol import Store
from em.values.syntax_tree import module_of


@lru_cache(maxsize=1)
def reserved_fields() -> frozenset[str]:
    """Return the names that the body of a generated class uses or has."""
    classes = [part for part in _trees()[0].body if isinstance(part, ast.ClassDef)]
    samples = [one for one in classes if one.name in (PROFILE, "Sample")]
    found = {name for one in samples for name in _names(one)}
    return frozenset(found - _SAMPLE.keys())


@lru_cache(maxsize=1)
def reserved_classes() -> frozenset[str]:
    """Return the names of the module, of the sandbox's code and of Python, but for `Sample`."""
    found = {name for tree in _trees() for name in _names(tree)}
    return frozenset((found | set(dir(builtins))) - {"Sample"})


@lru_cache(maxsize=1)
def reserved_collections() -> frozenset[str]:
    """Return the attributes of State, and the names of the module that a question's code sees."""
    state = State(cast("Store", None), StateSchema(subject=""), 0)
    (class_,) = [
        part for part in _trees()[0].body if isinstance(part, ast.ClassDef) and part.name == "State"
    ]
    of_module = {name for part in _trees()[0].body for name in _bound_by(part)}
    return frozenset({*dir(state), *vars(state), *_names(class_), *of_module} - {"samples"})


_SAMPLE: dict[str, Any] = {
    "a_date": "2025-01-01",
    "a_time": "10:30",
    "a_moment": "2025-01-01T10:30:00Z",
    "an_amount": "5 EUR",
    "a_decimal": "1.5",
    "a_number": 1.5,
    "a_truth": True,
    "a_list": ["a"],
    "an_object": {},
    "nothing": None,
}
"""A record with every type that a field can have."""


@lru_cache(maxsize=1)
def _trees() -> tuple[ast.Module, ast.Module]:
    """Return the code that em writes for a sample: the module, and that of the sandbox."""
    schema = StateSchema(subject="")
    schema.types["Sample"] = TypeSchema("Sample", "Sample", "samples")
    schema.types[PROFILE] = TypeSchema(PROFILE, PROFILE, "profile", [])
    for type_ in schema.types.values():
        type_.count = 1
        for name, value in _SAMPLE.items():
            type_.fields[name] = FieldSchema(name, name)
            fold_column(type_.fields[name], [value], ["event"], 0)
    schema.constraints = [Constraint("sample", "info", "", action="sample")]
    return module_of(write_module(schema)), module_of(write_sandbox_code(schema) + CALL)


def _names(tree: ast.AST) -> set[str]:
    """Return every name that code uses or binds."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            found.add(node.id)
        else:
            found |= _bound_by(node)
    return found


def _bound_by(node: ast.AST) -> set[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {(one.asname or one.name) for one in node.names}
    return set()
