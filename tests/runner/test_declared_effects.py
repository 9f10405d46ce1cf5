"""The effect that `em.tool` was told is known to whoever gets the function."""

import asyncio

import pytest

import em
from em.runner.tools import ToolRegistry
from em.values.call import Effect


@pytest.mark.parametrize("effect", ["read", "write"])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_tool_that_is_recorded_keeps_its_effect(effect: Effect, *, is_async: bool) -> None:
    def look(number: int) -> int:
        return number + 1

    async def later(number: int) -> int:
        return number + 1

    made = em.tool(later if is_async else look, name="look_up", effect=effect)
    tool = ToolRegistry([made]).get("look_up")
    assert tool is not None
    assert tool.effect == effect
    assert (asyncio.run(made(1)) if is_async else made(1)) == 2
