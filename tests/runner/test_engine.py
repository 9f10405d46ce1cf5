"""A routine runs step by step, without a model; a failing step is told, never raised."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from em.errors import InvalidRoutine, RoutineError, UsageError
from em.runner.engine import arun_routine, run_routine
from em.runner.run import RunResult
from em.runner.tools import ToolRegistry
from em.runner.validation import validate
from em.values.call import Fix

Run = Callable[..., RunResult]


@pytest.fixture(params=["plain", "asyncio"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Write a routine and run it: every test runs with both drivers."""

    def go(steps: str, *, udf: str = "", head: str = "", **kwargs: Any) -> RunResult:
        (tmp_path / "routine.yaml").write_text(f"name: test\n{head}\nsteps:\n{steps}")
        (tmp_path / "udf.py").write_text(udf)
        if request.param == "plain":
            return run_routine(tmp_path, **kwargs)
        return asyncio.run(arun_routine(tmp_path, **kwargs))

    return go


CSV = """
  - {id: s1, type: tool.call, tool: fetch_csv, args: {url: "{{ url }}"}, save_as: raw}
  - {id: s2, type: udf.call, function: parse, args: {text: "{{ raw }}"}, save_as: rows}
  - {id: s3, type: assert, check: "len(rows) > 0", message: "no rows in {{ url }}"}
  - {id: s4, type: return, value: "{{ rows }}"}
"""
PARSE = "def parse(text):\n    return [line.split(',') for line in text.splitlines()]\n"


def test_steps_run_in_order_and_pass_values_on(run: Run) -> None:
    result = run(
        CSV, udf=PARSE, input_data={"url": "u"}, tool_registry={"fetch_csv": lambda url: "a,b\n1,2"}
    )
    assert (result.status, result.failure) == ("ok", None)
    assert result.output == [["a", "b"], ["1", "2"]]
    assert result.context["raw"] == "a,b\n1,2"
    assert [(step.id, step.status) for step in result.steps] == [
        (f"s{n}", "done") for n in range(1, 5)
    ]


def test_an_option_that_no_run_has_is_refused_before_anything_is_called(run: Run) -> None:
    called: list[str] = []
    step = "  - {id: s1, type: tool.call, tool: pay, args: {}, effect: write}"
    with pytest.raises(TypeError, match="dry_run"):
        run(step, tool_registry={"pay": lambda: called.append("paid")}, dry_run=True)
    assert not called


def test_an_assertion_that_does_not_hold_ends_the_run(run: Run) -> None:
    result = run(
        CSV, udf=PARSE, input_data={"url": "u"}, tool_registry={"fetch_csv": lambda url: ""}
    )
    assert (result.status, result.output) == ("failed", None)
    assert result.failure is not None
    assert (result.failure.step_id, result.failure.message) == ("s3", "step s3: no rows in u")


def test_a_tool_that_raises_is_told_with_its_step_and_arguments(run: Run) -> None:
    def broken(x: int) -> None:
        raise ConnectionError("down")

    step = '  - {id: a, type: tool.call, tool: broken, args: {x: "{{ n }}"}}'
    failure = run(step, input_data={"n": 1}, tool_registry={"broken": broken}).failure
    assert failure is not None
    assert (failure.step_id, failure.error_type, failure.message) == (
        "a",
        "ConnectionError",
        "down",
    )
    assert failure.context == {"args": {"x": 1}}


@pytest.mark.parametrize(
    ("steps", "step_id", "says"),
    [
        ('  - {id: a, type: tool.call, tool: t, args: {x: "{{ nope }}"}}', "a", "'nope' is not"),
        ("  - {id: a, type: tool.call, tool: t, args: {y: 1}}", "a", "unexpected keyword"),
        (
            "  - {id: a, type: tool.call, tool: tt}",
            "a",
            "step a, field tool: there is no tool 'tt'",
        ),
        ("  - {id: a, type: udf.call, function: f}", "a", "there is no function 'f'"),
        ('  - {id: a, type: assert, check: "nope"}', "a", "'nope' is not defined"),
        ('  - {id: a, type: tool.call, tool: t, when: "nope"}', "a", "'nope' is not defined"),
        (
            '  - {id: a, type: tool.call, tool: t, for_each: "{{ n }}"}',
            "a",
            "for_each needs a list",
        ),
        ("  - {id: a, type: tool.call, tool: t, checks: {pre: [n > 5]}}", "a", "failed: n > 5"),
        ("  - {id: a, type: tool.call, tool: t, checks: {post: [result > 5]}}", "a", "post-check"),
    ],
)
def test_what_goes_wrong_is_told_with_its_step(
    run: Run, steps: str, step_id: str, says: str
) -> None:
    result = run(steps, input_data={"n": 1}, tool_registry={"t": lambda x=0: x})
    assert result.status == "failed"
    assert result.failure is not None
    assert result.failure.step_id == step_id
    assert says in result.failure.message


def test_when_skips_and_names_of_skipped_steps_stay_undefined(run: Run) -> None:
    steps = """
  - {id: a, type: tool.call, tool: t, when: "n > 5", save_as: x}
  - {id: b, type: return, value: "{{ x | default('none') }}"}
"""
    result = run(steps, input_data={"n": 1}, tool_registry={"t": lambda: 1})
    assert result.output == "none"
    assert [step.status for step in result.steps] == ["skipped", "done"]


def test_for_each_keeps_the_order_of_the_items(run: Run) -> None:
    steps = """
  - {id: a, type: tool.call, tool: work, for_each: "{{ xs }}", as: x,
     args: {x: "{{ x }}"}, save_as: out}
  - {id: b, type: return, value: "{{ out }}"}
"""
    tools = {"work": lambda x: x * 10}
    result = run(steps, input_data={"xs": list(range(7))}, tool_registry=tools)
    assert result.output == [0, 10, 20, 30, 40, 50, 60]


def test_a_retry_policy_is_followed(run: Run) -> None:
    calls: list[int] = []

    def flaky(fail: int, error: str) -> int:
        calls.append(1)
        if len(calls) <= fail:
            raise ConnectionError(error)
        return len(calls)

    def go(fail: int, error: str = "down", retry: str = "{attempts: 3, backoff: 0.001}") -> Any:
        calls.clear()
        steps = (
            f"  - {{id: a, type: tool.call, tool: flaky, args: {{fail: {fail}, error: {error}}},"
            f" effect: read, retry: {retry}, save_as: x}}\n"
            '  - {id: b, type: return, value: "{{ x }}"}'
        )
        return run(steps, tool_registry={"flaky": flaky})

    assert go(2).output == 3
    assert go(2).steps[0].attempts == 3
    assert go(3).status == "failed"
    only = "{attempts: 3, backoff: 0.001, errors: [busy]}"
    assert go(1, "busy now", only).status == "ok"
    assert go(1, "down", only).status == "failed"


@pytest.mark.parametrize("many", ["", ", for_each: [1, 2], as: x"])
@pytest.mark.parametrize(
    ("error", "safe", "times"),
    [
        (ValueError, "", 1),
        (ValueError, ", safe: true", 3),
        (TimeoutError, ", safe: true", 3),
        (ConnectionRefusedError, "", 3),
    ],
)
def test_a_write_that_raised_is_repeated_only_where_it_can_do_no_harm(
    run: Run, many: str, error: type[Exception], safe: str, times: int
) -> None:
    made: list[int] = []

    def pay() -> None:
        made.append(1)
        raise error

    steps = f"""  - {{id: a, type: tool.call, tool: pay, effect: write{many},
     retry: {{attempts: 3, backoff: 0.001{safe}}}}}"""
    assert run(steps, tool_registry={"pay": pay}).status == "failed"
    assert len(made) == times, "the first that fails ends the run"


@pytest.mark.parametrize(("on_error", "expected"), [("continue", None), ("{default: [1]}", [1])])
def test_on_error_goes_on_with_a_value(run: Run, on_error: str, expected: Any) -> None:
    def broken() -> None:
        raise ValueError

    steps = (
        f"  - {{id: a, type: tool.call, tool: broken, on_error: {on_error}, save_as: x}}\n"
        '  - {id: b, type: return, value: "{{ x }}"}'
    )
    result = run(steps, tool_registry={"broken": broken})
    assert (result.status, result.output) == ("ok", expected)
    assert result.steps[0].status == "defaulted"


def test_a_timeout_leaves_the_call_behind(run: Run) -> None:
    gate = threading.Event()
    steps = "  - {id: a, type: tool.call, tool: slow, timeout: 0.05}"
    result = run(steps, tool_registry={"slow": lambda: gate.wait(2)})
    gate.set()
    assert result.failure is not None
    assert result.failure.error_type == "StepTimeout"


def test_coroutines_are_tools_too(run: Run) -> None:
    async def fetch(x: int) -> int:
        await asyncio.sleep(0)
        return x + 1

    steps = (
        "  - {id: a, type: tool.call, tool: fetch, args: {x: 1}, save_as: y}\n"
        '  - {id: b, type: return, value: "{{ y }}"}'
    )
    assert run(steps, tool_registry={"fetch": fetch}).output == 2


PROMPT = """
  - {id: ask, type: prompt.user, save_as: answer, prompt: {message: "Send {{ n }}?", fields: [
      {name: ok, type: confirm}, {name: to, type: select, options: [a, b], required: false}]}}
  - {id: end, type: return, value: "{{ answer }}"}
"""


def test_a_prompt_waits_for_an_answer_and_checks_it(run: Run) -> None:
    waiting = run(PROMPT, input_data={"n": 3})
    assert waiting.status == "needs_input"
    assert waiting.pending_prompt is not None
    assert waiting.pending_prompt.message == "Send 3?"
    assert [field["name"] for field in waiting.pending_prompt.fields] == ["ok", "to"]
    done = run(PROMPT, input_data={"n": 3}, answers={"ask": {"ok": "yes", "to": "b"}})
    assert done.output == {"ok": True, "to": "b"}
    for answers, says in (
        ({}, "required"),
        ({"ok": "perhaps"}, "yes or no"),
        ({"ok": True, "to": "c"}, "one of: a, b"),
        ({"ok": True, "x": 1}, "has no field"),
    ):
        asked = run(PROMPT, input_data={"n": 3}, answers={"ask": answers})
        assert asked.status == "needs_input", "a slip of the pen does not end the run"
        assert asked.pending_prompt is not None
        assert says in asked.pending_prompt.problem


def test_input_and_output_are_checked_by_their_schemas(run: Run) -> None:
    called: list[int] = []
    head = (
        "input_schema: {type: object, required: [n], properties: {n: {type: integer}}}\n"
        "output_schema: {type: string}"
    )
    steps = '  - {id: a, type: tool.call, tool: t}\n  - {id: b, type: return, value: "{{ n }}"}'
    tools = {"t": lambda: called.append(1)}
    wrong = run(steps, head=head, input_data={"n": "x"}, tool_registry=tools).failure
    assert wrong is not None
    assert "input does not fit" in wrong.message
    assert called == [], "before the first step"
    out = run(steps, head=head, input_data={"n": 1}, tool_registry=tools).failure
    assert out is not None
    assert "output does not fit" in out.message


def test_a_fix_keeps_the_idempotency_key_and_mends_arguments_that_did_not_resolve(
    run: Run,
) -> None:
    paid: list[Any] = []

    def pay(amount: int, idempotency_key: str) -> int:
        paid.append((amount, idempotency_key))
        if not isinstance(amount, int):
            raise TypeError("a number, please")
        return amount

    def go(amount: str) -> RunResult:
        steps = (
            f"  - {{id: a, type: tool.call, tool: pay, args: {{amount: {amount}}},"
            " idempotency_key: order-1, save_as: y}\n"
            '  - {id: b, type: return, value: "{{ y }}"}'
        )
        return run(
            steps,
            tool_registry={"pay": pay},
            auto_fix_fn=lambda _context: Fix(strategy="modify_args", args={"amount": 5}),
        )

    assert go("five").output == 5
    assert paid == [("five", "order-1"), (5, "order-1")]
    assert go("'{{ {}.amount }}'").output == 5


def test_why_there_is_no_fix_is_told(run: Run) -> None:
    failure = run(
        "  - {id: a, type: tool.call, tool: tool}",
        tool_registry={"tool": lambda: 1 / 0},
        auto_fix_fn=lambda _context: Fix(strategy="fail", reason="the model could not be asked"),
    ).failure
    assert failure is not None
    assert failure.context["fix"] == "the model could not be asked"


def test_a_fix_changes_the_arguments_once_skips_or_gives_up(run: Run) -> None:
    seen: list[Any] = []

    def tool(x: int) -> int:
        if x != 5:
            raise ValueError(f"not {x}")
        return x

    def go(fix: Fix) -> RunResult:
        def auto_fix(context: Any) -> Fix:
            seen.append(context)
            return fix

        steps = (
            "  - {id: a, type: tool.call, tool: tool, args: {x: 1}, save_as: y}\n"
            '  - {id: b, type: return, value: "{{ y }}"}'
        )
        return run(steps, tool_registry={"tool": tool}, auto_fix_fn=auto_fix)

    assert go(Fix(strategy="modify_args", args={"x": 5})).output == 5
    assert go(Fix(strategy="skip", default=7)).output == 7
    failure = go(Fix(strategy="modify_args", args={"x": 6})).failure
    assert failure is not None
    assert failure.message == "not 6"
    assert go(Fix(strategy="fail")).status == "failed"
    assert seen[0] == {
        "step_id": "a",
        "tool": "tool",
        "args": {"x": 1},
        "error_type": "ValueError",
        "message": "not 1",
    }
    assert len(seen) == 4


def test_arguments_are_made_anew_for_each_run(tmp_path: Path) -> None:
    (tmp_path / "routine.yaml").write_text(
        "name: t\nsteps:\n"
        "  - {id: a, type: tool.call, tool: grow, args: {xs: [1]}, save_as: y}\n"
        '  - {id: b, type: return, value: "{{ y }}"}\n'
    )

    def grow(xs: list[int]) -> list[int]:
        xs.append(2)
        return xs

    for _ in range(2):
        assert run_routine(tmp_path, tool_registry={"grow": grow}).output == [1, 2]


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("name: [", RoutineError, "routine.yaml:2: not valid YAML"),
        ("name: x\nsteps: [{id: a, type: nope}]", InvalidRoutine, "steps[0]"),
        ("name: x\nsteps: [{id: a, type: return, valeu: 1}]", InvalidRoutine, "valeu"),
        ("name: x\nversion: '2'", InvalidRoutine, "version"),
        ("name: x\ntools: [{name: t, command: {run: [ls]}}]", InvalidRoutine, "command"),
        ("[]", InvalidRoutine, "object"),
        ('name: x\nsteps: [{id: a, type: return, value: "{{ n. }}"}]', RoutineError, "step a"),
    ],
)
def test_a_routine_that_is_none_is_refused(
    tmp_path: Path, text: str, error: type[Exception], says: str
) -> None:
    (tmp_path / "routine.yaml").write_text(text)
    with pytest.raises(error) as caught:
        run_routine(tmp_path)
    assert says in str(caught.value)


def test_there_must_be_a_routine_and_its_input_be_names(tmp_path: Path) -> None:
    with pytest.raises(RoutineError, match=r"no routine\.yaml"):
        run_routine(tmp_path / "none")
    (tmp_path / "routine.yaml").write_text("name: x")
    with pytest.raises(UsageError):
        run_routine(tmp_path, input_data=[1])  # type: ignore[arg-type]
    assert run_routine(tmp_path).output is None


def test_a_udf_file_that_breaks_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "routine.yaml").write_text("name: x\nsteps: [{id: a, type: udf.call, function: f}]")
    for code, says in (("def f(:", "invalid Python"), ("x = 1\nraise OSError('no')", "udf.py:2")):
        (tmp_path / "udf.py").write_text(code)
        with pytest.raises(RoutineError, match=says):
            run_routine(tmp_path)


def test_a_registry_knows_its_tools(tmp_path: Path) -> None:
    registry = ToolRegistry()

    @registry.tool(effect="read")
    def fetch(url: str) -> str:
        """Fetch a page."""
        return url

    assert (registry["fetch"].effect, registry["fetch"].description) == ("read", "Fetch a page.")
    with pytest.raises(UsageError):
        registry.register("x", 5)  # type: ignore[arg-type]
    (tmp_path / "tools.py").write_text("def one(): return 1\ndef _private(): return 2\n")
    assert list(ToolRegistry.load(str(tmp_path / "tools.py"))) == ["one"]
    with pytest.raises(UsageError):
        ToolRegistry.load("no.such.module")
    with pytest.raises(UsageError):
        ToolRegistry.load(str(tmp_path / "none.py"))


def test_progress_is_told_step_by_step(run: Run) -> None:
    seen: list[str] = []
    steps = "  - {id: a, type: tool.call, tool: t}\n  - {id: b, type: return}"
    run(steps, tool_registry={"t": lambda: 1}, on_step=lambda step: seen.append(step.id))
    assert seen == ["a", "b"]


def test_a_write_is_not_repeated_because_its_check_could_not_be_evaluated(run: Run) -> None:
    called: list[int] = []
    steps = (
        "  - {id: a, type: tool.call, tool: t, retry: {attempts: 3, backoff: 0.001},"
        " checks: {post: [result.nope > 1]}}"
    )
    assert run(steps, tool_registry={"t": lambda: called.append(1)}).status == "failed"
    assert called == [1]


def test_checks_and_retries_hold_for_items_side_by_side(run: Run) -> None:
    calls: list[int] = []

    def flaky(x: int) -> int:
        calls.append(x)
        if calls.count(x) == 1 and x == 2:
            raise ConnectionRefusedError
        return x

    each = '  - {id: a, type: tool.call, tool: t, for_each: "{{ xs }}", as: x,'
    args = ' args: {x: "{{ x }}"}'
    for more, status in (
        (", retry: {attempts: 3, backoff: 0.001}", "ok"),
        (', checks: {pre: ["x > 1"]}', "failed"),
        (', checks: {post: ["result > 1"]}', "failed"),
    ):
        calls.clear()
        result = run(
            each + args + more + "}", input_data={"xs": [1, 2, 3]}, tool_registry={"t": flaky}
        )
        assert result.status == status, more


def test_a_tool_that_raises_stop_iteration_is_a_failure_like_any_other(run: Run) -> None:
    def odd() -> None:
        raise StopIteration("odd")

    result = run("  - {id: a, type: tool.call, tool: odd}", tool_registry={"odd": odd})
    assert result.status == "failed"
    assert result.failure is not None
    assert "odd" in result.failure.message


@pytest.mark.parametrize(("on_error", "expected"), [("continue", None), ("{default: few}", "few")])
def test_on_error_holds_for_an_assertion_too(run: Run, on_error: str, expected: Any) -> None:
    steps = (
        f"  - {{id: a, type: assert, check: n > 5, message: too few, on_error: {on_error},"
        " save_as: x}\n"
        '  - {id: b, type: return, value: "{{ x }}"}'
    )
    result = run(steps, input_data={"n": 1})
    assert (result.status, result.output) == ("ok", expected)
    assert (result.steps[0].status, result.steps[0].error) == ("defaulted", "step a: too few")


def test_an_assertion_holds_for_each_item(run: Run) -> None:
    steps = (
        '  - {id: a, type: assert, for_each: "{{ xs }}", as: x, check: x > 0,'
        ' message: "{{ x }} is none"}'
    )
    assert run(steps, input_data={"xs": [1, 2]}).status == "ok"
    failure = run(steps, input_data={"xs": [1, -2]}).failure
    assert failure is not None
    assert failure.message == "step a: -2 is none"


def test_on_error_holds_for_an_item_whose_call_cannot_be_made(run: Run) -> None:
    steps = (
        '  - {id: a, type: tool.call, tool: t, for_each: "{{ xs }}", as: x,'
        ' checks: {pre: [x > 0]}, args: {x: "{{ x }}"}, on_error: {default: none}, save_as: y}\n'
        '  - {id: b, type: return, value: "{{ y }}"}'
    )
    result = run(steps, input_data={"xs": [1, -1, 2]}, tool_registry={"t": lambda x: x * 10})
    assert result.output == [10, "none", 20]


@pytest.mark.parametrize(
    ("step", "says"),
    [
        ('{id: a, type: prompt.user, for_each: "{{ xs }}", prompt: {message: m}}', "for_each"),
        ("{id: a, type: return, retry: {attempts: 2}}", "retry"),
        ("{id: a, type: assert, check: x, timeout: 3}", "timeout"),
        ("{id: a, type: tool.call, tool: t, retry: {attempts: 0}}", "attempts"),
        ("{id: a, type: tool.call, tool: t, retry: {backoff: -1}}", "backoff"),
        ("{id: a, type: tool.call, tool: t, timeout: 0}", "timeout"),
        ("{id: a, type: tool.call, tool: t, timeout: .nan}", "timeout"),
        ("{id: a, type: tool.call, tool: t, parallel: 3}", "parallel"),
        (
            "{id: a, type: prompt.user, prompt: {message: m, fields: [{name: x, type: select}]}}",
            "a select field needs options",
        ),
        ('{id: a, type: prompt.user, prompt: {message: m, fields: [{name: "{{ x }}"}]}}', "name"),
        ("{id: a, type: return, value: {x: 1, x: 2}}", "routine.yaml:2: 'x' is repeated"),
        (
            "{id: a, type: return, value: [&x 1, *x]}",
            "routine.yaml:2: YAML aliases",
        ),
        ("{id: a, type: return, value: &x [*x]}", "YAML aliases are not supported"),
        ("{id: a, type: return, value: " + "[" * 101 + "]" * 101 + "}", "nested too deeply"),
        ("{id: a, type: return, value: " + "[" * 900 + "]" * 900 + "}", "nested too deeply"),
        ("{id: a, type: return, value: " + "[" * 90000, "nested too deeply"),
    ],
)
def test_what_would_be_ignored_or_do_harm_is_refused(tmp_path: Path, step: str, says: str) -> None:
    (tmp_path / "routine.yaml").write_text(f"name: x\nsteps: [{step}]\n")
    with pytest.raises(RoutineError) as caught:
        run_routine(tmp_path)
    assert says in str(caught.value)
    assert any(says.removeprefix("routine.yaml:2: ") in str(found) for found in validate(tmp_path))


def test_a_coroutine_whose_time_is_up_is_cancelled_and_its_own_timeouts_stay_its_own(
    run: Run,
) -> None:
    ended: list[str] = []

    async def slow() -> None:
        try:
            await asyncio.sleep(10)
        finally:
            ended.append("cancelled")

    async def own() -> None:
        raise TimeoutError("the server gave up")

    steps = "  - {id: a, type: tool.call, tool: t, timeout: 0.1}"
    late = run(steps, tool_registry={"t": slow}).failure
    assert late is not None
    assert (late.error_type, late.message) == ("StepTimeout", "no answer within 0.1 s")
    assert ended == ["cancelled"]
    theirs = run(steps, tool_registry={"t": own}).failure
    assert theirs is not None
    assert (theirs.error_type, theirs.message) == ("TimeoutError", "the server gave up")


def test_a_coroutine_that_never_yields_is_left_behind(tmp_path: Path) -> None:
    gate = threading.Event()

    async def blocking() -> None:
        gate.wait(10)

    (tmp_path / "routine.yaml").write_text(
        "name: x\nsteps: [{id: a, type: tool.call, tool: t, timeout: 0.05}]"
    )
    failure = run_routine(tmp_path, {}, {"t": blocking}).failure
    gate.set()
    assert failure is not None
    assert failure.message == "no answer within 0.05 s"


def test_coroutines_can_be_tools_of_a_plain_run_inside_a_loop(tmp_path: Path) -> None:
    async def fetch() -> int:
        return 5

    (tmp_path / "routine.yaml").write_text(
        "name: x\nsteps: [{id: a, type: tool.call, tool: fetch, save_as: x}]"
    )

    async def as_a_notebook_does() -> RunResult:
        return run_routine(tmp_path, {}, {"fetch": fetch})

    assert asyncio.run(as_a_notebook_does()).context == {"x": 5}
