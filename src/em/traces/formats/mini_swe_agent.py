"""mini-swe-agent: answers with commands, in a code block or as calls of the tool `bash`.

`extra.actions` of an answer has its commands, and `extra` of each observation what came of one of
them. Trajectories without `extra` (version 1) have one command in a code block and its output in
the next message. With OpenAI's Responses, answers have `output` and observations `call_id`.
"""

import re
from typing import Any

from em.traces.formats import Importer, Reader
from em.traces.formats._messages import (
    as_args,
    as_value,
    exit_failure,
    is_message,
    plain,
    role_of,
    text_of,
)
from em.traces.intake import Incoming
from em.values.canonical import Json

NAME = "mini-swe-agent"
_COMMAND = re.compile(r"```(?:mswea_bash_command|bash)\s*\n(.*?)\n?```", re.DOTALL)
_CODE = re.compile(r"<returncode>(-?\d+)</returncode>")
_OUTPUT = re.compile(r"<output>\n?(.*?)\n?</output>", re.DOTALL)


def _is_mini_swe_agent(value: Any) -> bool:
    if isinstance(value, dict):
        if str(value.get("trajectory_format", "")).startswith("mini-swe-agent"):
            return True
        messages = value.get("messages")
    else:
        messages = value
    return (
        isinstance(messages, list)
        and all(map(is_message, messages))
        and any("```mswea_bash_command" in text_of(one.get("content")) for one in messages)
    )


class _Reader(Reader):
    def read(self, value: Any) -> None:
        messages = value.get("messages") if isinstance(value, dict) else value
        if not isinstance(messages, list):
            self.intake.unknown("no messages")
            return
        trace = self.intake.nameless(NAME)
        _Chat(trace).add([message for message in messages if isinstance(message, dict)])
        info = value.get("info") if isinstance(value, dict) else None
        if isinstance(info, dict):
            _add_info(trace, info)
        trace.close()


class _Chat:
    """The messages of a trajectory. Observations without an id belong to the commands in order."""

    def __init__(self, trace: Incoming) -> None:
        self._trace = trace
        self._open: list[str] = []

    def add(self, messages: list[Json]) -> None:
        for number, message in enumerate(messages):
            role, text = _role(message), _message_text(message)
            if role == "assistant":
                self._trace.spent(None)
                self._trace.say("assistant", text)
                self._calls(message, text, number)
            elif self._open and _is_observation(message, role):
                self._observation(message, text)
            else:
                self._trace.say(role, text)

    def _calls(self, message: Json, text: str, number: int) -> None:
        self._open = []
        for index, (command, given) in enumerate(_commands(message, text)):
            call_id = given or f"message {number}.{index}"
            self._open.append(call_id)
            self._trace.call("bash", {"command": command}, call_id)

    def _observation(self, message: Json, text: str) -> None:
        given = message.get("tool_call_id") or message.get("call_id")
        call_id = given if given in self._open else self._open[0]
        self._open.remove(call_id)
        code, output = _ended(message, text)
        error = exit_failure(code, output)
        self._trace.result(call_id, None if error is not None else output, error)


def _role(message: Json) -> str:
    if message.get("object") == "response":
        return "assistant"
    if message.get("type") == "function_call_output":
        return "tool"
    return role_of(plain(message))


def _message_text(message: Json) -> str:
    if message.get("object") == "response" and isinstance(message.get("output"), list):
        items = [item for item in message["output"] if isinstance(item, dict)]
        return "\n".join(text for text in (text_of(item.get("content")) for item in items) if text)
    return text_of(message.get("content", message.get("output")))


def _commands(message: Json, text: str) -> list[tuple[str, str]]:
    """Return the commands of an answer, each with its id, "" if it has none."""
    extra = message.get("extra")
    actions = extra.get("actions") if isinstance(extra, dict) else None
    if isinstance(actions, list):
        return [
            (str(one.get("command")), str(one.get("tool_call_id") or ""))
            for one in actions
            if isinstance(one, dict)
        ]
    calls = message.get("tool_calls")
    if isinstance(calls, list) and calls:
        given = [(call.get("function") or {}, str(call.get("id") or "")) for call in calls]
        return [(str(as_args(inner.get("arguments")).get("command")), own) for inner, own in given]
    found = _COMMAND.findall(text)
    return [(found[0], "")] if len(found) == 1 else []  # the program refuses more than one


def _is_observation(message: Json, role: str) -> bool:
    """Return whether a message after commands has the output of one, or ends the run."""
    extra = message.get("extra")
    return not (isinstance(extra, dict) and "interrupt_type" in extra) and role != "assistant"


def _ended(message: Json, text: str) -> tuple[Any, Any]:
    """Return exit code and output of a command."""
    extra = message.get("extra")
    if isinstance(extra, dict) and "returncode" in extra:
        output = extra.get("raw_output")
        return extra["returncode"], output or extra.get("exception_info") or output
    given = as_value(text)
    if isinstance(given, dict) and "returncode" in given:
        output = given.get("output", given.get("output_head"))
        return given["returncode"], output or given.get("exception_info") or output
    code, found = _CODE.search(text), _OUTPUT.search(text)
    return int(code.group(1)) if code else None, found.group(1) if found else text


def _add_info(trace: Incoming, info: Json) -> None:
    found = info.get("model_stats")
    stats: Json = found if isinstance(found, dict) else {}
    if stats.get("api_calls"):
        trace.usage["model_calls"] = int(stats["api_calls"])
    if stats.get("instance_cost"):
        trace.usage["cost_usd"] = float(stats["instance_cost"])
    if isinstance(info.get("submission"), str):
        trace.output = info["submission"]
    status = info.get("exit_status")
    if isinstance(status, str) and status and not status.lower().startswith("submitted"):
        trace.outcome = "failure"  # a limit, a wrong format or an exception ended the run


IMPORTER = Importer(
    name=NAME, title="mini-swe-agent trajectories", fits=_is_mini_swe_agent, reader=_Reader
)
