"""`em run --request` finds the routine that was recorded with these words."""

import json
from pathlib import Path

import pytest
from em_command import em

from em import Memory
from em.runner.package import keep_routine

GREET = """\
name: greet
input_schema: {type: object, required: [who], properties: {who: {type: string}}}
requests: ["say hello to {who}"]
steps: [{id: end, type: return, value: "hello {{ who }}"}]
"""


@pytest.fixture(autouse=True)
def _kept() -> None:
    with Memory(".em/em.db") as memory:
        keep_routine(memory.store, {"routine.yaml": GREET})


def test_recorded_words_run_the_routine() -> None:
    ran = em("run", "--request", "Say hello to Ana.")
    assert (ran.code, ran.out) == (0, '"hello Ana"\n')
    assert "greet@1" in ran.err


def test_other_words_run_nothing_and_name_what_is_alike() -> None:
    ran = em("run", "--request", "do say hello, dear Ana", "--json")
    assert ran.code == 1
    assert (ran.json["status"], ran.json["offered"]) == ("needs_input", ["greet@1"])
    assert em("runs", "list", "--json").json["runs"] == []


@pytest.mark.parametrize("words", ["do say hello, dear Ana", "water the plants"])
def test_what_can_be_done_where_no_routine_fits_is_printed(words: str) -> None:
    ran = em("run", "--request", words)
    assert ran.code == 1
    assert "em run greet@1 who=…" in ran.err
    assert "--llm" in ran.err


def test_where_no_routine_is_in_use_the_next_command_is_printed() -> None:
    assert em("routine", "retire", "greet@1").code == 0
    ran = em("run", "--request", "say hello to Ana")
    assert (ran.code, "em routine suggest" in ran.err) == (1, True)


@pytest.mark.parametrize("given", [["--request"], ["greet"]])
def test_the_configured_model_reads_other_words_if_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: list[str]
) -> None:
    read = {"fits": True, "inputs": {"who": "Ana"}, "missing": [], "not_expressed": []}
    replies = [{"routine": "greet", **read} if given == ["--request"] else read]
    (tmp_path / "replies.json").write_text(json.dumps(replies))
    monkeypatch.setenv("EM_LLM_PROVIDER", "scripted")
    monkeypatch.setenv("EM_LLM_BASE_URL", str(tmp_path / "replies.json"))
    words = "do say hello, dear Ana"
    asked = [*given, words] if given == ["--request"] else [*given, f"request={words}"]
    assert em("run", *asked).code == 1
    ran = em("run", *asked, "--llm")
    assert (ran.code, ran.out) == (0, '"hello Ana"\n')


@pytest.mark.parametrize(
    ("words", "greeted"),
    [("as always", True), ("Say hello to Ana.", True), ("Say hello to Bob.", False)],
)
def test_inputs_beside_a_request_count_unless_it_contradicts_them(
    words: str, *, greeted: bool
) -> None:
    ran = em("run", "greet", f"request={words}", "who=Ana")
    assert (ran.code == 0) == greeted
    assert ran.out == ('"hello Ana"\n' if greeted else ran.out)


@pytest.mark.parametrize("mode", ["off", "shadow"])
def test_routines_that_are_switched_off_are_not_looked_for(
    monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setenv("EM_ROUTINES", mode)
    ran = em("run", "--request", "Say hello to Ana.", "--json")
    assert (ran.code, json.loads(ran.err)["error"]["code"]) == (1, "routines_off")


CANCEL = """\
name: cancel
checks: hand_over
requests: ["Cancel my order, I am {email}", "Order {order} of {email} must go"]
input_schema:
  type: object
  required: [email, order]
  properties: {email: {type: string}, order: {type: string}}
tools: [{name: find_user, effect: read}, {name: cancel, effect: write}]
steps:
- {id: user, type: tool.call, tool: find_user, args: {email: "{{ email }}"}, save_as: user}
- {id: own, type: assert, check: "order in user.orders", held: 4/4}
- {id: cancel, type: tool.call, tool: cancel, args: {order: "{{ order }}"}}
"""
TOOLS = """\
def find_user(email):
    return {"orders": ["W-1", "W-2"]}
def cancel(order):
    open("cancelled", "a").write(order)
"""


def test_what_a_missing_input_may_be_is_printed(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(TOOLS)
    with Memory(".em/em.db") as memory:
        keep_routine(memory.store, {"routine.yaml": CANCEL})
    ran = em("run", "--request", "Cancel my order, I am a@b.example", "--tools", "tools.py")
    assert ran.code == 1
    (line,) = [one for one in ran.err.splitlines() if "W-1" in one]
    assert "W-2" in line
    assert "order" in line
    assert not Path("cancelled").exists()


@pytest.mark.parametrize("also", [("greet",), ("who=Ana",), ("--input", '{"who": "Ana"}')])
def test_a_request_is_given_alone(also: tuple[str, ...]) -> None:
    assert em("run", "--request", "say hello to Bo", *also).code == 2


def test_a_run_needs_a_routine_or_a_request() -> None:
    assert em("run").code == 2


@pytest.mark.parametrize("value", ["", "null", '"{{ who[:0] }}"'])
def test_a_run_that_returns_nothing_says_that_it_is_done(value: str) -> None:
    text = GREET.replace('"hello {{ who }}"', value).replace("greet", "hush")
    with Memory(".em/em.db") as memory:
        keep_routine(memory.store, {"routine.yaml": text})
    ran = em("run", "hush", "who=Ana")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err
    assert em("run", "hush", "who=Ana", "--json").json["status"] == "ok"
