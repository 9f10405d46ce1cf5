"""Calls in an exported script: retries, timeouts, several at once, checks."""

import asyncio
import functools
import inspect
import queue
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

from em.compiler.export.script.ends import CheckFailed, Failed, StepTimeout
from em.compiler.export.script.values import FAIL, ExpressionError, RoutineProblem


def bring(tools: Any, names: dict[str, str]) -> SimpleNamespace:
    """The tools by name, from a module, an object or a mapping; none may be missing.

    `names` says which step is the first to call each.
    """
    found: Any = tools
    if not isinstance(tools, Mapping):
        found = {name: getattr(tools, name, None) for name in names}
    for name, step in names.items():
        if found.get(name) is None:
            raise Failed(step, RoutineProblem(f"there is no tool {name!r}"))
    return SimpleNamespace(**{name: awaited(found[name]) for name in names})


def awaited(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that waits for its result, also where it is a coroutine."""
    if not inspect.iscoroutinefunction(function):
        return function

    @functools.wraps(function)
    def wait(**args: Any) -> Any:
        return asyncio.run(function(**args))

    return wait


def call_with(function: Callable[..., Any], args: dict[str, Any], timeout: float | None) -> Any:
    """Call a function; past its timeout it is left behind in its thread."""
    if timeout is None:
        return function(**args)
    done: queue.SimpleQueue[tuple[Any, Exception | None]] = queue.SimpleQueue()

    def work() -> None:
        try:
            done.put((function(**args), None))
        except Exception as error:  # noqa: BLE001 - raised again where it is waited for
            done.put((None, error))

    threading.Thread(target=work, daemon=True).start()
    try:
        value, error = done.get(timeout=timeout)
    except queue.Empty:
        raise StepTimeout(f"no answer within {timeout:g} s") from None
    if error is not None:
        raise error
    return value


def attempt(
    function: Callable[..., Any],
    args: Callable[[], dict[str, Any]],
    *,
    pre: Callable[[], Any] | None = None,
    post: Callable[[Any], Any] | None = None,
    attempts: int = 1,
    backoff: float = 0.1,
    errors: tuple[str, ...] = (),
    timeout: float | None = None,
    otherwise: Any = FAIL,
) -> Any:
    """One call with its checks, again as its retry policy says; `otherwise` if it fails."""
    tried = 0
    while True:
        tried += 1
        returned = False
        try:
            if pre is not None:
                computed(pre)
            value = call_with(function, computed(args), timeout)
            returned = True
            if post is not None:
                computed(post, value)
        except Exception as error:
            if not returned and tried < attempts and may_help(error, errors):
                time.sleep(backoff * 2 ** (tried - 1))
                continue
            if otherwise is FAIL:
                raise
            return otherwise
        return value


def computed(expression: Callable[..., Any], *values: Any) -> Any:
    """The value of an expression; what goes wrong in it is the routine's own problem."""
    try:
        return expression(*values)
    except RoutineProblem:
        raise
    except Exception as error:
        raise ExpressionError(str(error) or type(error).__name__) from error


def may_help(error: Exception, errors: tuple[str, ...]) -> bool:
    """Whether trying again may help: `errors` names the types or texts for which it may."""
    if isinstance(error, RoutineProblem):
        return False
    told = (type(error).__name__, str(error))
    return not errors or any(word in text for word in errors for text in told)


def side_by_side(
    items: list[Any],
    function: Callable[..., Any],
    args: Callable[[Any], dict[str, Any]],
    *,
    at_once: int,
    pre: Callable[[Any], Any] | None = None,
    post: Callable[[Any, Any], Any] | None = None,
    timeout: float | None = None,
    **policy: Any,
) -> list[Any]:
    """A call for each item, some at once; one that failed is tried again by itself."""
    if pre is not None:
        for item in items:
            computed(pre, item)
    given = [computed(args, item) for item in items]
    call = functools.partial(outcome, function, timeout)
    with ThreadPoolExecutor(max_workers=at_once) as pool:
        outcomes = list(pool.map(call, given))
    results = []
    for item, (value, error) in zip(items, outcomes, strict=True):
        problem = error or (post and violated(post, item, value))
        if problem is None:
            results.append(value)
        elif policy.get("attempts", 1) > 1 and may_help(problem, policy.get("errors", ())):
            policy["pre"] = pre and functools.partial(pre, item)
            policy["post"] = post and functools.partial(post, item)
            again = functools.partial(args, item)
            results.append(attempt(function, again, timeout=timeout, **policy))
        elif "otherwise" in policy:
            results.append(policy["otherwise"])
        else:
            raise problem
    return results


def outcome(
    function: Callable[..., Any], timeout: float | None, args: dict[str, Any]
) -> tuple[Any, Exception | None]:
    """What a call gave, or the error it ended in."""
    try:
        return call_with(function, args, timeout), None
    except Exception as error:  # noqa: BLE001 - judged when all are done
        return None, error


def violated(post: Callable[..., Any], item: Any, value: Any) -> Exception | None:
    """The check that does not hold after a call."""
    try:
        computed(post, item, value)
    except RoutineProblem as problem:
        return problem
    return None


def each(items: Any) -> list[Any]:
    """The items to go through."""
    if not isinstance(items, list | tuple):
        raise RoutineProblem(f"for_each needs a list, not a {type(items).__name__}")
    return list(items)


def key_for(function: Callable[..., Any], key: Callable[[], Any]) -> dict[str, Any]:
    """The idempotency key, for a tool that takes one."""
    try:
        takes_it = "idempotency_key" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        takes_it = False
    return {"idempotency_key": key()} if takes_it else {}


def check(holds: Any, when: str, source: str) -> None:
    """A check before or after a call."""
    if not holds:
        raise CheckFailed(f"the {when}-check {source!r} does not hold")


def ensure(holds: Any, message: Callable[[], Any]) -> None:
    """An assertion."""
    if not holds:
        raise CheckFailed(str(message() or "the assertion does not hold"))
