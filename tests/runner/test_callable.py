"""A stored routine as a plain Python function."""

import asyncio
import inspect

import pytest

from em import AsyncMemory, Memory
from em.errors import InputError, RunNotDone
from em.runner.history import find_runs
from em.runner.package import keep_routine

GREET = """\
name: greet
description: Greet somebody.
checks: hand_over
input_schema:
  type: object
  properties: {who: {type: string}, times: {type: integer}}
  required: [who]
steps:
  - {id: known, type: assert, check: "who != 'nobody'", message: "must be somebody"}
  - {id: out, type: return, value: "Hello {{ who }}"}
"""


def test_a_routine_is_a_function_with_a_signature() -> None:
    with Memory("em.db") as memory:
        keep_routine(memory.store, {"routine.yaml": GREET})
        greet = memory.routine("greet")
        signature = inspect.signature(greet)
        assert (greet.__name__, greet.__doc__) == ("greet", "Greet somebody.")
        assert list(signature.parameters) == ["who", "times"]
        assert signature.parameters["who"].default is inspect.Parameter.empty
        assert greet.__annotations__ == {"who": str, "times": int}
        assert greet(who="Ana") == "Hello Ana"


def test_a_hand_over_is_raised_with_its_reason() -> None:
    with Memory("em.db") as memory:
        keep_routine(memory.store, {"routine.yaml": GREET})
        with pytest.raises(RunNotDone) as raised:
            memory.routine("greet")(who="nobody")
    assert raised.value.code == "run_not_done"
    assert raised.value.data["reason"]["step_id"] == "known"


def test_a_failure_is_raised_with_its_step() -> None:
    with Memory("em.db") as memory:
        keep_routine(memory.store, {"routine.yaml": GREET.replace("checks: hand_over\n", "")})
        with pytest.raises(RunNotDone) as raised:
            memory.routine("greet")(who="nobody")
    assert raised.value.data["status"] == "failed"
    assert raised.value.data["reason"]["step_id"] == "known"


ASKS = """\
name: asks
steps:
  - {id: ask, type: prompt.user, prompt: {message: Loudly?, fields: [{name: loud, type: confirm}]}}
"""


def test_no_call_leaves_a_run_that_waits() -> None:
    with Memory("em.db") as memory:
        keep_routine(memory.store, {"routine.yaml": GREET})
        keep_routine(memory.store, {"routine.yaml": ASKS})
        functions = {one.__name__: one for one in memory.tools()}
        for greet in (memory.routine("greet"), functions["greet"]):
            with pytest.raises(InputError, match="who"):
                greet(times=3)
        for asks in (memory.routine("asks"), functions["asks"]):
            with pytest.raises(RunNotDone, match="Loudly"):
                asks()
        with pytest.raises(RunNotDone):
            functions["greet"](who="nobody")
        assert find_runs(memory.store, status="needs_input").runs == []


def test_an_async_memory_returns_a_coroutine_function() -> None:
    async def work() -> None:
        async with AsyncMemory("em.db") as memory:
            greet = await memory.routine("greet")
            assert inspect.iscoroutinefunction(greet)
            assert list(inspect.signature(greet).parameters) == ["who", "times"]
            assert await greet(who="Ana") == "Hello Ana"

    with Memory("em.db") as memory:
        keep_routine(memory.store, {"routine.yaml": GREET})
    asyncio.run(work())
