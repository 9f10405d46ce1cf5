"""A redacted argument is a secret of the routine: filled in when it runs, written nowhere."""

from pathlib import Path
from typing import Any

import pytest

from em import Memory
from em.compiler.compile_trace import compile_trace
from em.errors import RoutineError
from em.runner.engine import run_routine
from em.runner.package import Package
from em.runner.routine import ToolStep
from em.runner.secrets import without_secrets
from em.settings import AllowSettings
from em.traces.trace import Mission, ToolCall, Trace
from em.values.call import Fix
from em.values.json_schema import properties_of

KEY, TOKEN = "plain-words-not-like-a-key", "another odd one"
GIVEN = {"api_key": KEY, "token": TOKEN}
ROUTINE = """
name: weather
checks: hand_over
input_schema: {type: object, required: [city], properties: {city: {type: string}}}
secrets: [{name: api_key}, {name: token}]
tools:
  - {name: get_place, effect: read}
  - {name: get_weather, effect: read}
  - {name: send, effect: write}
steps:
  - id: get_place
    type: tool.call
    tool: get_place
    args: {city: "{{ city }}", key: "{{ api_key }}"}
    save_as: place
  - id: get_weather
    type: tool.call
    tool: get_weather
    args:
      id: "{{ place.id }}"
      session: "{{ place.session }}"
      headers: {auth: "Bearer {{ token }}"}
    save_as: weather
  - id: approval
    type: prompt.user
    prompt: {message: "Send with {{ api_key }}?", fields: [{name: answer, type: confirm}]}
    save_as: approval
  - {id: agreed, type: assert, check: approval.answer}
  - id: send
    type: tool.call
    tool: send
    args: {text: "{{ weather.sky }}", key: "{{ api_key }}"}
  - {id: end, type: return, value: {sky: "{{ weather.sky }}"}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "routine.yaml").write_text(ROUTINE)
    return tmp_path / "r"


class Tools:
    """Tools that repeat the secrets they got."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.fails = ""

    def get_place(self, city: str, key: str) -> Any:
        self.calls.append(("get_place", key))
        return {"id": "place-1", "session": f"session of {key}"}

    def get_weather(self, id: str, session: str, headers: Any) -> Any:  # noqa: A002 - the tool's own name
        self.calls.append(("get_weather", session, headers["auth"]))
        return {"sky": "rain", "echo": session}

    def send(self, text: str, key: str) -> str:
        self.calls.append(("send", key))
        if self.fails:
            raise ValueError(f"{self.fails} with {key}")
        return "ok"

    @property
    def by_name(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("get_place", "get_weather", "send")}


YES = {"approval": {"answer": True}}


def test_a_redacted_argument_compiles_to_a_named_secret() -> None:
    call = ToolCall(
        tool="send",
        args={"city": "Porto", "key": "[redacted:api_key]"},
        result="ok",
        effect="write",
    )
    given = {"city": "Porto", "api_key": "[redacted:api_key]"}
    routine = compile_trace(Trace(mission=Mission("send", given), events=[call])).draft.routine
    assert [secret.name for secret in routine.secrets] == ["api_key"]
    (step,) = [step for step in routine.steps if isinstance(step, ToolStep)]
    assert step.args["key"] == "{{ api_key }}"
    assert list(properties_of(routine.input_schema)) == ["city"]


def test_secrets_come_from_the_environment_or_the_caller(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = [
        ("get_place", KEY),
        ("get_weather", f"session of {KEY}", f"Bearer {TOKEN}"),
        ("send", KEY),
    ]
    for secrets in (GIVEN, GIVEN.get):
        tools = Tools()
        done = run_routine(folder, {"city": "Faro"}, tools.by_name, answers=YES, secrets=secrets)
        assert (done.status, done.output["sky"], tools.calls) == ("ok", "rain", expected)
    monkeypatch.setenv("EM_SECRET_API_KEY", KEY)
    missing = run_routine(folder, {"city": "Faro"}, Tools().by_name, answers=YES)
    assert missing.status == "failed"
    assert missing.failure is not None
    assert "'token' is not set (set the environment variable EM_SECRET_TOKEN)" in (
        missing.failure.message
    )
    monkeypatch.setenv("EM_SECRET_TOKEN", TOKEN)
    tools = Tools()
    run_routine(folder, {"city": "Faro"}, tools.by_name, answers=YES)
    assert tools.calls == expected


def test_no_secret_reaches_the_disk_and_a_run_can_be_resumed(folder: Path, tmp_path: Path) -> None:
    tools = Tools()
    with Memory(tmp_path / "em.db") as memory:
        given = {"city": f"Faro, my key is {KEY}"}
        waiting = memory.run(folder, given, tools.by_name, secrets=GIVEN)
        assert waiting.status == "needs_input"
        with pytest.raises(RoutineError, match="was a secret"):
            memory.resume(waiting.run_id, tools.by_name, answers=YES, secrets=GIVEN)
        waiting = memory.run(folder, {"city": "Faro"}, tools.by_name, secrets=GIVEN)
        with pytest.raises(RoutineError, match="EM_SECRET_API_KEY"):
            memory.resume(waiting.run_id, tools.by_name, answers=YES)
        tools.calls.clear()
        done = memory.resume(waiting.run_id, tools.by_name, answers=YES, secrets=GIVEN)
        assert done.status == "ok"
        # Reads whose results held the secret are made again: the journal does not have them.
        assert [call[0] for call in tools.calls] == ["get_place", "get_weather", "send"]
        tools.fails = "no"
        failed = memory.run(folder, {"city": "Faro"}, tools.by_name, answers=YES, secrets=GIVEN)
        assert failed.failure is not None
        assert failed.failure.message == "no with [redacted:api_key]"
        assert failed.failure.context["args"]["key"] == "[redacted:api_key]"
        assert KEY not in repr(failed)
        assert any("[redacted:api_key]" in repr(event.body) for event in memory.log.read())
    written = b"".join(path.read_bytes() for path in tmp_path.glob("em.db*"))
    for secret in GIVEN.values():
        assert secret.encode() not in written


def test_who_mends_a_step_never_sees_a_secret_and_may_pass_it_on(folder: Path) -> None:
    seen: list[Any] = []

    def fix(context: Any) -> Fix:
        seen.append(context)
        tools.fails = ""
        return Fix(strategy="modify_args", args=context["args"])

    tools = Tools()
    tools.fails = "no"
    done = run_routine(folder, {"city": "Faro"}, tools.by_name, fix, answers=YES, secrets=GIVEN)
    assert done.status == "ok"
    assert KEY not in repr(seen)
    assert tools.calls[-1] == ("send", KEY)


def test_a_secret_within_another_is_masked_whole(tmp_path: Path) -> None:
    (tmp_path / "routine.yaml").write_text(
        "name: x\nsecrets: [{name: a, env: MY_A}, {name: b}]\n"
        "steps:\n  - {id: s, type: tool.call, tool: t, args: {x: '{{ b }}', y: '{{ a }}'}}\n"
    )

    def t(x: str, y: str) -> None:
        raise ValueError(f"{x} and {y}")

    done = run_routine(tmp_path, {}, {"t": t}, secrets={"a": "abc", "b": "abcdef"})
    assert done.failure is not None
    assert done.failure.message == "[redacted:b] and [redacted:a]"


SIGNS = """
name: signs
secrets: [{name: key}]
steps:
  - {id: s, type: tool.call, tool: sign, args: {key: "{{ key }}"}, save_as: told}
  - {id: ask, type: prompt.user, prompt: {message: "use {{ key }}?", fields: [
      {name: ok, type: confirm}, {name: how, default: "by {{ key }}"}]}}
  - {id: end, type: return, value: ok}
"""


def write(folder: Path, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "routine.yaml").write_text(text)
    return folder


@pytest.mark.parametrize("word", ["done", "args", "step_id", "s", "tool", "confirm", "failed"])
def test_a_secret_that_is_a_word_of_em_breaks_nothing(tmp_path: Path, word: str) -> None:
    folder, given, told = write(tmp_path / "r", SIGNS), {"key": word}, []

    def fails(key: str) -> None:
        raise ValueError("no")

    def fix(context: Any) -> Fix:
        return Fix(strategy="skip", default=1, reason="so")

    result = run_routine(folder, {}, {"sign": lambda key: 1}, secrets=given, on_step=told.append)
    assert (result.status, [report.status for report in told]) == ("needs_input", ["done"])
    mended = run_routine(folder, {}, {"sign": fails}, fix, secrets=given)
    assert (mended.status, mended.steps[0].status) == ("needs_input", "defaulted")
    assert list(mended.context) == ["told"]


def test_what_a_run_asks_is_told_without_its_secrets(tmp_path: Path) -> None:
    folder = write(tmp_path / "r", SIGNS)
    waiting = run_routine(folder, {}, {"sign": lambda key: 1}, secrets={"key": "hush-hush"})
    assert waiting.pending_prompt is not None
    assert waiting.pending_prompt.message == "use [redacted:key]?"
    assert "hush" not in repr(waiting)


def test_a_secret_comes_only_from_variables_that_are_meant_for_it_or_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUD_KEY", "of the user's own")
    monkeypatch.setenv("EM_SECRET_SHARED", "shared one")
    text = (
        'name: r\nsecrets: [{name: x, env: %s}]\nsteps: [{id: e, type: return, value: "{{ x }}"}]'
    )
    folder = write(tmp_path / "r", text % "CLOUD_KEY")
    for allow in (None, AllowSettings(env=["OTHER"])):
        refused = run_routine(folder, {}, allow=allow).failure
        assert refused is not None
        assert refused.error_type == "NotAllowed"
        assert "'CLOUD_KEY' is not allowed" in refused.message
        assert "--allow-env CLOUD_KEY" in refused.message
    allowed = run_routine(folder, {}, allow=AllowSettings(env=["CLOUD_KEY"]))
    assert allowed.output == "of the user's own"
    assert run_routine(folder, {}, secrets={"x": "given"}).output == "given"
    assert run_routine(write(folder, text % "EM_SECRET_SHARED"), {}).output == "shared one"


def test_what_a_secret_prompt_did_not_ask_for_is_not_written(tmp_path: Path) -> None:
    fields = "[{name: pin, type: secret}, {name: who}]"
    folder = write(
        tmp_path / "r",
        "name: r\nsteps:\n  - {id: ask, type: prompt.user,"
        f" prompt: {{message: P, fields: {fields}}}}}",
    )
    given = {"ask": {"Pin": "hunter3secret", "who": "me"}, "aks": {"pin": "hunter3secret"}}
    kept = without_secrets(Package(folder).routine, {**given, "ask?": {"happened": True}})
    assert kept == {"ask": {"who": "me"}, "ask?": {"happened": True}}
    with Memory(tmp_path / "em.db") as memory:
        memory.run(folder, {}, {}, answers={"ask": given["ask"]})
        assert "hunter3secret" not in repr([event.body for event in memory.log.read()])
