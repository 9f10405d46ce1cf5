"""The lint says of a piece of code what monty itself does with it."""

import ast

import pytest
from unconfined import Unconfined

from em.errors import SandboxFault, SandboxRefused
from em.runner.sandbox import choose
from em.runner.sandbox.monty import METHODS, MODULES, SUBSET_RULES, MontySandbox, lint

pytest.importorskip("pydantic_monty")

TAKEN = {
    "nested functions": "def f():\n    def g(x): return x + 1\n    return g(1)",
    "arguments": "def f(*a, b=1, **k): return [a, b, k]",
    "comprehensions": "def f(): return [[x for x in range(3)], {1: 2}[1], sorted({1, 2})]",
    "generator inside a call": "def f(): return sum(x for x in range(4))",
    "lambda": "def f(): return sorted(['b', 'A'], key=lambda s: s.lower())",
    "match": "def f():\n    match {'a': [1, 2]}:\n        case {'a': [x, *_]}: return x",
    "dataclass": "from dataclasses import dataclass, field\n@dataclass(frozen=True)\nclass P:\n"
    "    x: int\n    y: list = field(default_factory=list)\n    def m(self): return self.x\n"
    "def f(): return [P(1), P(2).m()]",
    "class": "class A:\n    n = 0\n    def __init__(self, x): self.x = x\n"
    "    def __eq__(self, o): return self.x == o.x\ndef f(): return A(1) == A(1)",
    "with": "class A:\n    def __enter__(self): return 5\n    def __exit__(self, *a): pass\n"
    "def f():\n    with A() as x: return x",
    "try": "def f():\n    try:\n        return int('x')\n    except (ValueError, KeyError) as e:\n"
    "        return str(e)\n    finally:\n        pass",
    "own decorator": "def twice(g):\n    def h(): return g() * 2\n    return h\n@twice\n"
    "def f(): return 2",
    "cache": "from functools import lru_cache\n@lru_cache(None)\ndef g(x): return x\n"
    "def f(): return g(1)",
    "collections": "from collections import Counter, defaultdict, deque, namedtuple\n"
    "def f(): return [dict(Counter('aab')), list(deque([1])), namedtuple('P', 'x')(1).x]",
    "dates": "from datetime import datetime, timedelta\n"
    "def f(): return datetime.fromisoformat('2024-01-31') + timedelta(days=1)",
    "decimals": "from decimal import Decimal, ROUND_HALF_UP\n"
    "def f(): return Decimal('2.675').quantize(Decimal('0.01'), ROUND_HALF_UP)",
    "regular expressions": "import re\n"
    "def f(): return [re.sub(r'(a)(b)?', r'<\\1>', 'xaby'), re.findall(r'(?<=a)b', 'ab')]",
    "csv": "import csv\ndef f(): return list(csv.DictReader('a,b\\n1,2'.splitlines()))",
    "json": "import json\ndef f(): return json.loads(json.dumps({'a': [1, None]}))",
    "format": "def f(): return [f'{1234.5:,.2f}', '%05.1f' % 2.25, '{:>4}'.format('a')]",
    "round": "def f(): return [round(2.5), round(3.5)]",
    "walrus": "def f(): return (n := 5) + n",
    "unpacking": "def f():\n    a, *b = [1, 2, 3]\n    return [*b, *{**{'k': a}}]",
    "own names": "def g(help): return [help]\ndef f(): return g(1)",
    "fields with the names of methods": "from dataclasses import dataclass\n@dataclass\nclass P:\n"
    "    count: int\ndef f(): return P(2).count",
    "future": "from __future__ import annotations\ndef f(x: Unknown = 1) -> Unknown: return x",
}


@pytest.mark.parametrize("code", TAKEN.values(), ids=TAKEN.keys())
def test_what_the_lint_takes_gives_the_same_as_python(code: str) -> None:
    assert lint(code) == []
    assert MontySandbox().run(code, "f", {}) == Unconfined().run(code, "f", {})


REFUSED = {
    "base class": "class E(Exception): pass\ndef f(): return 1",
    "object as base": "class A(object): pass\ndef f(): return 1",
    "metaclass": "class A(metaclass=type): pass\ndef f(): return 1",
    "property": "class A:\n    @property\n    def x(self): return 1\ndef f(): return A().x",
    "staticmethod": "class A:\n    @staticmethod\n    def x(): return 1\ndef f(): return A.x()",
    "classmethod": "class A:\n    @classmethod\n    def x(cls): return 1\ndef f(): return A.x()",
    "unknown special method": "class A:\n    def __len__(self): return 1\ndef f(): return len(A())",
    "special method without effect": "class A:\n    def __bool__(self): return False\n"
    "def f(): return bool(A())",
    "order": "from dataclasses import dataclass\n@dataclass(order=True)\nclass P:\n    x: int\n"
    "def f(): return P(1) < P(2)",
    "generator": "def g():\n    yield 1\ndef f(): return list(g())",
    "yield from": "def g():\n    yield from [1]\ndef f(): return list(g())",
    "next of a generator": "def f(): return next((x for x in [1, 2] if x > 1), None)",
    "statistics": "import statistics\ndef f(): return statistics.mean([1, 2])",
    "operator": "from operator import itemgetter\ndef f(): return itemgetter(0)([1])",
    "submodule": "from collections.abc import Mapping\ndef f(): return isinstance({}, Mapping)",
    "asdict": "from dataclasses import asdict\ndef f(): return 1",
    "wildcard": "from math import *\ndef f(): return sqrt(4)",
    "relative": "from . import x\ndef f(): return 1",
    "del": "def f():\n    d = {'a': 1}\n    del d['a']\n    return d",
    "except*": "def f():\n    try:\n        return 1\n    except* ValueError:\n        pass",
    "super": "class A:\n    def m(self): return super().__repr__()\ndef f(): return A().m()",
    "callable": "def f(): return callable(len)",
    "another built-in": "def f(): return ascii('\xe9')",
    "a built-in exception": "def f():\n    try: return 1 / 0\n    except EOFError: return 2",
    "method of a type": "def f(): return sorted(['b', 'A'], key=str.lower)",
    "method as a value": "def f():\n    d = {'a': 1}\n    return max(d, key=d.get)",
    "sub with a function": "import re\ndef f(): return re.sub('a', lambda m: 'b', 'a')",
    "sub with a named function": "import re\ndef g(m): return 'b'\n"
    "def f(): return re.sub('a', g, 'a')",
    "exception with two": "def f(): raise ValueError('a', 1)",
    "round": "def f(): return round(2.675, 2)",
    "class crawl": "def f(): return str(().__class__.__mro__)",
    "timestamp": "from datetime import datetime\ndef f(): return datetime.fromtimestamp(0)",
    "no Python": "def f(:",
}


@pytest.mark.parametrize("code", REFUSED.values(), ids=REFUSED.keys())
def test_what_the_lint_refuses_monty_can_not_do_or_does_otherwise(code: str) -> None:
    assert lint(code), code
    try:
        expected = Unconfined().run(code, "f", {})
    except SandboxFault as error:
        expected = error.data["reason"]
    try:
        given = MontySandbox().run(code, "f", {})
    except SandboxFault as error:
        given = "raised", error.data["reason"]
    assert given != expected


def test_a_finding_names_its_line() -> None:
    found = lint("import json\nimport statistics\n\nclass A(Exception):\n    pass\n")
    assert [finding.line for finding in found] == [2, 4]
    assert "statistics" in str(found[0])
    assert str(found[1]).startswith("line 4: classes have no bases")


def test_every_module_and_special_method_of_the_lists_is_as_the_lists_say() -> None:
    monty = MontySandbox()
    for module in sorted(MODULES.keys() - {"__future__"}):
        assert monty.run(f"import {module}\ndef f(): return 1", "f", {}) == 1, module
    for module, names in MODULES.items():
        for name in names:
            with pytest.raises(SandboxFault):
                monty.run(f"from {module} import {name}\ndef f(): return 1", "f", {})
    assert all(name.startswith("__") for name in METHODS)


def test_code_beyond_the_subset_is_refused_with_all_findings_where_only_monty_may_run_it() -> None:
    with pytest.raises(SandboxRefused) as caught:
        choose("import statistics\ndef f():\n    yield 1\n", prefer="monty")
    assert len(caught.value.data["findings"]) == 2
    assert "line 1" in str(caught.value)


def test_the_rules_for_a_model_name_every_module() -> None:
    for module in MODULES.keys() - {"__future__"}:
        assert module in SUBSET_RULES


def test_code_nested_too_deep_for_the_parser_is_a_finding() -> None:
    assert lint("x = " + "(" * 5_000 + ")" * 5_000)
    with pytest.raises((SyntaxError, RecursionError, MemoryError)):
        ast.parse("x = " + "(" * 5_000 + ")" * 5_000)
