"""The examples in docstrings run, and what most people import from `em` has one."""

import inspect
import re
import textwrap
from collections.abc import Callable
from typing import Any

import anthropic
import pytest

import em
from em.traces.live.model_client import instrument

_BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
SHOWN: list[Callable[..., Any]] = [
    em.Memory,
    em.Memory.record,
    em.Engine,
    em.Check,
    em.tool,
    instrument,
]


@pytest.mark.parametrize("thing", SHOWN, ids=lambda thing: thing.__qualname__)
def test_the_example_of_a_docstring_runs(thing: Callable[..., Any]) -> None:
    blocks = _BLOCK.findall(inspect.getdoc(thing) or "")
    assert blocks, "its docstring has no example"
    for block in blocks:
        names: dict[str, Any] = {"__name__": "__docs__"}
        exec(compile(textwrap.dedent(block), thing.__qualname__, "exec"), names)
        for one in names.values():
            if isinstance(one, em.Memory | anthropic.Anthropic):
                one.close()
