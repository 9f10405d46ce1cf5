"""tau-bench and tau2-bench: result files as their programs write them, one trace for each run.

tau-bench writes a list of runs (`task_id`, `reward`, `info`, `traj`, `trial`). An agent with tools
makes calls as in OpenAI's chats, one without writes them as text (`Action: {…}`). tau2-bench writes
`simulations`, and in them the simulated user calls tools too: those are not the agent's.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from em.traces.formats import Importer, Reader
from em.traces.formats._messages import (
    add_message,
    as_value,
    is_message,
    text_of,
    tokens_of,
    when,
)
from em.traces.intake import Incoming
from em.traces.trace import Outcome, reports_error
from em.values.canonical import Json

NAME = "tau-bench"
_RUN = frozenset({"task_id", "reward", "info", "traj"})
_API = "API output: "
_RESPOND = "respond"


def _is_tau_bench(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    if value.keys() >= _RUN:
        return isinstance(value["traj"], list) and isinstance(value["info"], dict)
    return _is_simulation(value) or _simulations(value) is not None


def _is_simulation(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and {"task_id", "termination_reason", "messages"} <= value.keys()
        and isinstance(value["messages"], list | None)
    )


def _simulations(value: Json) -> Sequence[Json] | None:
    """Return the simulations of a result file of tau2-bench."""
    given = value.get("simulations")
    if not isinstance(given, list) or not isinstance(value.get("tasks"), list):
        return None
    return given if all(map(_is_simulation, given)) else None


class _Reader(Reader):
    def read(self, value: Any) -> None:
        if not _is_tau_bench(value):
            self.intake.unknown("not a run of tau-bench")
        elif value.keys() >= _RUN:
            self._run(value)
        else:
            tasks = {
                task.get("id"): task for task in value.get("tasks") or () if isinstance(task, dict)
            }
            for run in _simulations(value) or [value]:
                self._simulation(run, tasks.get(run.get("task_id"), {}))

    def _run(self, run: Json) -> None:
        trace = self.intake.nameless(NAME, **_which(run))
        task = run["info"].get("task")
        trace.goal = str((task if isinstance(task, dict) else {}).get("instruction") or "")
        messages = [message for message in run["traj"] if is_message(message)]
        if any(message.get("tool_calls") or message["role"] == "tool" for message in messages):
            for message in messages:
                add_message(trace, message)
        else:
            _add_texts(trace, messages)
        trace.outcome = _outcome(run["reward"])
        trace.close()

    def _simulation(self, run: Json, task: Json) -> None:
        trace = self.intake.nameless(NAME, **_which(run))
        scenario = task.get("user_scenario")
        asked = scenario.get("instructions") if isinstance(scenario, dict) else None
        trace.goal = asked if isinstance(asked, str) else _reason(asked)
        for message in run["messages"] or ():
            if isinstance(message, dict):
                _add_simulated(trace, message)
        given = run.get("reward_info")
        trace.outcome = _outcome(given.get("reward") if isinstance(given, dict) else None)
        trace.close()


def _which(run: Json) -> Json:
    """Return which run of which task it is; the same task may be run many times."""
    return {"task": str(run["task_id"]), "trial": str(run.get("id", run.get("trial", 0)))}


def _reason(asked: Any) -> str:
    return str(asked.get("reason_for_call") or "") if isinstance(asked, dict) else ""


def _outcome(reward: Any) -> Outcome:
    """Return the outcome of a reward: 1.0 is the maximum."""
    if isinstance(reward, bool) or not isinstance(reward, int | float):
        return "unknown"
    return "success" if reward == 1 else "failure"


def _add_texts(trace: Incoming, messages: Sequence[Json]) -> None:
    """Add the messages of an agent that writes its calls as text."""
    open_call = ""
    for number, message in enumerate(messages):
        text = text_of(message.get("content"))
        if message["role"] == "assistant":
            trace.spent(tokens_of(message.get("usage")))
            trace.say("assistant", text)
            called = _action(text)
            if called is not None:
                open_call = f"message {number}"
                trace.call(*called, open_call)
        elif open_call and text.startswith(_API):
            output = text.removeprefix(_API)
            failed = reports_error(output) or output.startswith("Unknown action ")
            trace.result(
                open_call, None if failed else as_value(output), output if failed else None
            )
            open_call = ""
        else:
            trace.say(message["role"], text)


def _action(text: str) -> tuple[str, Json] | None:
    """Return the call at the end of an answer, None if the agent speaks to the user."""
    try:
        found = msgspec.json.decode(text.rpartition("Action:")[2].strip())
    except msgspec.DecodeError:
        return None
    if not isinstance(found, dict) or not isinstance(found.get("arguments"), dict):
        return None
    name = str(found.get("name"))
    return None if name == _RESPOND else (name, found["arguments"])


def _add_simulated(trace: Incoming, message: Json) -> None:
    """Add a message of a simulation: of the agent, its tools, or the user and the user's tools."""
    role, at = message.get("role"), when(message.get("timestamp"))
    text = text_of(message.get("content"))
    if role == "tool" and isinstance(message.get("tool_messages"), list):
        for one in message["tool_messages"]:
            _add_simulated(trace, {**one, "role": "tool"})
    elif role == "tool" and message.get("requestor") != "user":
        failed = message.get("error") is True
        result, error = (None, text or "failed") if failed else (as_value(text), None)
        if not trace.result(str(message.get("id") or ""), result, error, at):
            trace.say("tool", text, at)
    elif role == "tool":
        trace.say("environment", text, at)
    else:
        trace.say(str(role), text, at)
        if role == "assistant":
            tokens: int | None = trace.spent(
                tokens_of(message.get("usage")), cost=float(message.get("cost") or 0.0)
            )
            for call in message.get("tool_calls") or ():
                name, args = str(call.get("name")), call.get("arguments")
                trace.call(name, args, str(call.get("id") or ""), at, tokens=tokens)
                tokens = 0


IMPORTER = Importer(name=NAME, title="tau-bench results", fits=_is_tau_bench, reader=_Reader)
