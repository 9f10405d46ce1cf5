"""Calls, failures and outcomes of transcripts, counted by fields alone: nothing of em is used.

One short rule for each format, over every object of a file. What a rule does not need it ignores.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

Object = dict[str, Any]


class Counted(NamedTuple):
    """What a file has. `outcomes` counts its labelled traces: "success" and "failure"."""

    calls: int
    failures: int
    outcomes: dict[str, int]


def values_of(text: str) -> list[Any]:
    """Every JSON value of a file: a document, or its lines, without those that are none."""
    try:
        return [json.loads(text)]
    except ValueError:
        pass
    found = []
    for line in text.splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def objects_in(value: Any) -> Iterator[Object]:
    """Every object within a value, in the order of the text."""
    if isinstance(value, dict):
        yield value
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for part in parts:
        yield from objects_in(part)


def count(folder: str, text: str) -> Counted:
    """Count a file of a folder, which has the name of its format."""
    values = values_of(text)
    objects = [found for value in values for found in objects_in(value)]
    calls, failures, outcomes = RULES[folder](values, objects)
    return Counted(calls, failures, {kind: n for kind, n in outcomes.items() if n})


Rule = tuple[int, int, Counter[str]]
_TEST = re.compile(r"(?:^|&& )(?:pytest|npm test|cargo test|go test|git push)\b[^|;]*$")


def _by_last_test(commands: list[tuple[str, bool]]) -> Counter[str]:
    """The outcome of one session, by its last test run or push."""
    tests = [failed for command, failed in commands if _TEST.search(command)]
    return Counter(["failure" if tests[-1] else "success"] if tests else [])


def _claude_code(_values: list[Any], objects: list[Object]) -> Rule:
    calls = [one for one in objects if one.get("type") == "tool_use"]
    failed = {one["tool_use_id"] for one in objects if one.get("is_error") is True}
    commands = [(str(one["input"].get("command")), one["id"] in failed) for one in calls]
    return len(calls), len(failed & {one["id"] for one in calls}), _by_last_test(commands)


def _codex(_values: list[Any], objects: list[Object]) -> Rule:
    calls: dict[str, str] = {}
    failed: set[str] = set()
    for one in objects:
        kind = one.get("type")
        if kind == "function_call":
            calls[f"{one['call_id']} {one['name']}"] = str(one.get("arguments"))
        elif kind == "CommandExecution" and f"{one['id']} exec_command" not in calls:
            calls[f"{one['id']} item"] = json.dumps({"cmd": one["command"][-1]})
        if kind == "CommandExecution" and one["exit_code"]:
            failed.add(one["id"])
        if kind == "function_call_output" and re.search(
            r"^(?:Process exited with code|Exit code:) [1-9]", str(one["output"]), re.MULTILINE
        ):
            failed.add(one["call_id"])
    commands = []
    for key, given in calls.items():
        found = re.search(r'"cmd": "(.*)"', given)
        commands.append((found.group(1) if found else "", key.split()[0] in failed))
    return len(calls), len(failed), _by_last_test(commands)


def _opencode(_values: list[Any], objects: list[Object]) -> Rule:
    states = [one["state"] for one in objects if one.get("type") == "tool"]
    commands = [
        (
            str(state["input"].get("command")),
            state["status"] == "error" or state.get("metadata", {}).get("exit", 0) != 0,
        )
        for state in states
    ]
    return len(states), sum(failed for _, failed in commands), _by_last_test(commands)


def _pi(_values: list[Any], objects: list[Object]) -> Rule:
    calls = [one for one in objects if one.get("type") == "toolCall"]
    failed = {one["toolCallId"] for one in objects if one.get("isError") is True}
    commands = [(str(one["arguments"].get("command")), one["id"] in failed) for one in calls]
    return len(calls), len(failed), _by_last_test(commands)


def _mini_swe_agent(values: list[Any], objects: list[Object]) -> Rule:
    actions = [
        action["command"]
        for one in objects
        for action in one.get("extra", {}).get("actions", ())
        if one.get("role") == "assistant"
    ]
    if actions:
        codes = [one["returncode"] for one in objects if "raw_output" in one]
        commands = [(action, code != 0) for action, code in zip(actions, codes, strict=False)]
        return len(actions), sum(code != 0 for code in codes), _by_last_test(commands)
    texts = [(one["role"], one["content"]) for one in objects if "role" in one]
    calls = sum(role == "assistant" and "```mswea_bash_command" in text for role, text in texts)
    failed = sum(
        role == "user" and re.match(r"<returncode>-?[1-9]", text) is not None
        for role, text in texts
    )
    return calls, failed, Counter()


def _tau_bench(values: list[Any], objects: list[Object]) -> Rule:
    calls = sum(one.get("type") == "function" and "id" in one for one in objects)
    failed = sum(
        one.get("role") == "tool" and one["content"].startswith("Error: ") for one in objects
    )
    rewards = Counter("success" if run["reward"] == 1 else "failure" for run in values[0])
    return calls, failed, rewards


def _swe_agent(values: list[Any], _objects: list[Object]) -> Rule:
    steps, history = values[0].get("trajectory"), values[0]["history"]
    calls = len(steps) if steps else sum(len(one.get("tool_calls") or ()) for one in history)
    return calls, 0, Counter()  # the format does not say which commands failed


def _openhands(values: list[Any], objects: list[Object]) -> Rule:
    # An agent's finish is a call where the model called it as a tool.
    said = {"message", "change_agent_state", "finish", "null", "system", "recall"}
    calls = [
        one for one in objects
        if isinstance(one.get("action"), str)
        and (one["action"] not in said
             or (one["action"] == "finish" and "tool_call_metadata" in one))
    ]  # fmt: skip
    failed = [
        one for one in objects
        if "observation" in one and "content" in one
        and (one["observation"] == "error"
             or one.get("extras", {}).get("exit_code", 0) > 0
             or one.get("extras", {}).get("metadata", {}).get("exit_code", 0) > 0)
    ]  # fmt: skip
    told = [value["success"] for value in values if isinstance(value, dict) and "success" in value]
    return len(calls), len(failed), Counter("success" if good else "failure" for good in told)


def _openhands_sdk(_values: list[Any], objects: list[Object]) -> Rule:
    calls = {one["tool_call_id"] for one in objects if one.get("kind") == "ActionEvent"}
    failed = {
        one["tool_call_id"]
        for one in objects
        if one.get("kind") == "AgentErrorEvent"
        or (one.get("kind") == "ObservationEvent" and _went_wrong(one["observation"]))
    }
    return len(calls), len(failed & calls), Counter()  # an excerpt has a result of no call


def _went_wrong(observation: Object) -> bool:
    return observation.get("is_error") is True or (observation.get("exit_code") or 0) > 0


def _openinference(_values: list[Any], objects: list[Object]) -> Rule:
    tools = [
        one for one in objects
        if one.get("span_attributes", {}).get("openinference.span.kind") == "TOOL"
    ]  # fmt: skip
    return len(tools), sum(one.get("status_code") == "Error" for one in tools), Counter()


def _attributes(span: Object) -> Object:
    pairs = span.get("tags") or span.get("attributes") or []
    return {
        pair["key"]: next(iter(pair["value"].values()))
        if isinstance(pair["value"], dict)
        else pair["value"]
        for pair in pairs
    }


def _otel_genai(_values: list[Any], objects: list[Object]) -> Rule:
    spans = [_attributes(one) for one in objects if "spanID" in one or "spanId" in one]
    tools = [span for span in spans if span.get("gen_ai.operation.name") == "execute_tool"]
    by_span = {span["gen_ai.tool.call.id"] for span in tools}
    named = re.compile(r"gen_ai\.completion\.\d+\.tool_calls\.\d+\.id")
    by_answer = {value for span in spans for name, value in span.items() if named.fullmatch(name)}
    failed = {span["gen_ai.tool.call.id"] for span in tools if "error.type" in span}
    return len(by_span | by_answer), len(failed), Counter()


RULES = {
    "claude_code": _claude_code,
    "codex": _codex,
    "mini_swe_agent": _mini_swe_agent,
    "opencode": _opencode,
    "openhands": _openhands,
    "openhands_sdk_v1": _openhands_sdk,
    "openinference": _openinference,
    "otel_genai": _otel_genai,
    "pi": _pi,
    "swe_agent": _swe_agent,
    "tau_bench": _tau_bench,
}
