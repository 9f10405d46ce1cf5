"""Routines that a memory keeps: compiled from traces, run by name, healed, never overwritten."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from em import AsyncMemory, Memory
from em.errors import NotFound, RoutineError, UsageError
from em.llm import ScriptedClient
from em.log.event import EventQuery
from em.runner.package import files_in, keep_routine, kept_routines
from em.runner.routine import ToolStep
from em.traces.trace import Mission, Outcome, ToolCall, Trace
from em.values.call import Fix


def attempt(user: str, *tools: str, outcome: Outcome = "success") -> Trace:
    found = {"id": f"U-{user}", "name": user}
    calls = [
        ToolCall(tool="find_user", args={"name": user}, result=found),
        *(ToolCall(tool=tool, args={"user_id": found["id"]}, result="done") for tool in tools),
    ]
    mission = Mission("Close the account", {"name": user})
    return Trace(mission=mission, events=calls, outcome=outcome, final_output="done")


def tools(done: list[str]) -> dict[str, Any]:
    return {
        "find_user": lambda name: {"id": f"U-{name}", "name": name},
        "close_account": lambda user_id: done.append(user_id) or "done",
        "send_mail": lambda user_id: done.append(f"mail {user_id}") or "done",
    }


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path / "em.db") as memory:
        yield memory


def test_a_trace_of_the_log_becomes_a_routine_that_runs_by_its_name(memory: Memory) -> None:
    routine = memory.compile(memory.add_trace(attempt("anabel", "close_account")))
    assert (routine.name, routine.ref) == ("close_account", "close_account@1")
    done: list[str] = []
    for which in (routine, "close_account", "close_account@1"):
        result = memory.run(which, {"name": "bo"}, tools(done))
        assert (result.failure, result.output) == (None, "done")
    assert done == ["U-bo"] * 3


def test_the_same_again_is_the_same_version_and_another_is_a_new_one(memory: Memory) -> None:
    first = memory.add_trace(attempt("anabel", "close_account"))
    assert memory.compile(first).ref == memory.compile([first]).ref
    second = memory.add_trace(attempt("anabel", "close_account", "send_mail"))
    assert memory.compile(second, name="close_account").ref == "close_account@2"
    done: list[str] = []
    memory.run("close_account@1", {"name": "bo"}, tools(done))
    assert done == ["U-bo"], "the old version still does what it did"


def test_of_several_attempts_those_that_failed_are_left_out(memory: Memory) -> None:
    ids = [
        memory.add_trace(attempt("anabel", "send_mail", outcome="failure")),
        memory.add_trace(attempt("carlos", "close_account")),
        memory.add_trace(attempt("emilia", "close_account")),
    ]
    other = memory.add_trace(attempt("dagmar", "send_mail"))
    with pytest.raises(RoutineError):
        memory.compile([*ids, other])
    routine = memory.compile(ids)
    called = [step.tool for step in routine.steps if isinstance(step, ToolStep)]
    assert called == ["find_user", "close_account"]
    same = [kept for kept in memory.traces() if kept.id in ids[1:]]
    assert sorted(routine.from_events) == sorted(e for kept in same for e in kept.event_ids)


def test_forgetting_what_it_was_made_of_forgets_the_routine(memory: Memory) -> None:
    trace_id = memory.add_trace(attempt("anabel", "close_account"))
    memory.compile(trace_id)
    memory.forget(list(memory.traces()[0].event_ids))
    with pytest.raises(NotFound):
        memory.run("close_account", {"name": "bo"}, tools([]))
    with pytest.raises(NotFound):
        memory.compile(trace_id)
    assert b"U-anabel" not in Path(memory.store.location).read_bytes()


@pytest.mark.parametrize("ref", ["nope", "close_account@9", "close_account@x"])
def test_a_routine_that_is_not_kept_is_told(memory: Memory, ref: str) -> None:
    memory.compile(memory.add_trace(attempt("anabel", "close_account")))
    with pytest.raises((NotFound, UsageError)) as caught:
        memory.run(ref, {})
    assert "close_account" in str(caught.value)


def test_a_kept_routine_waits_and_goes_on(memory: Memory, tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "routine.yaml").write_text(
        "name: ask\nsteps:\n"
        "  - {id: a, type: prompt.user, save_as: x,"
        " prompt: {message: Sure?, fields: [{name: ok}]}}\n"
        '  - {id: b, type: return, value: "{{ x.ok }}"}\n'
    )
    keep_routine(memory.store, files_in(tmp_path / "r"))
    waiting = memory.run("ask")
    assert waiting.status == "needs_input"
    assert memory.resume(waiting.run_id, answers={"a": {"ok": "yes"}}).output == "yes"


def test_the_same_for_asyncio(tmp_path: Path) -> None:
    async def work() -> None:
        async with AsyncMemory(tmp_path / "em.db") as memory:
            trace_id = await memory.add_trace(attempt("anabel", "close_account"))
            routine = await memory.compile(trace_id)
            assert (await memory.run(routine, {"name": "bo"}, tools([]))).output == "done"

    asyncio.run(work())


def test_what_a_model_wrote_is_marked_in_the_log(memory: Memory) -> None:
    trace_id = memory.add_trace(attempt("anabel", "close_account"))
    answer = {
        "routine_yaml": "name: close\n"
        "tools: [{name: find_user, effect: read}, {name: close_account, effect: write}]\n"
        "input_schema: {type: object, properties: {name: {type: string}}}\n"
        "output_schema: {}\n"
        "steps:\n"
        '  - {id: a, type: tool.call, tool: find_user, args: {name: "{{ name }}"}, save_as: u}\n'
        "  - {id: same, type: assert, check: u.name == name}\n"
        '  - {id: b, type: udf.call, function: id_of, args: {user: "{{ u }}"}, save_as: i}\n'
        "  - {id: c, type: tool.call, tool: close_account, save_as: d,"
        ' args: {user_id: "{{ i }}"}}\n'
        '  - {id: e, type: return, value: "{{ d }}"}\n',
        "udf_py": "def id_of(user):\n    return user['id']\n",
        "notes": "",
    }
    routine = memory.compile(trace_id, client=ScriptedClient([answer]))
    assert routine.name == "close_account", "what it is called is not the model's to say"
    (written,) = memory.store.read(EventQuery(kinds=["code_written"]))
    assert written.body is not None
    assert written.body["model"] == "scripted/scripted"
    done: list[str] = []
    assert memory.run(routine, {"name": "bo"}, tools(done)).output == "done"
    assert done == ["U-bo"]


# --- healing --------------------------------------------------------------------------------------


def mended(fix: Fix) -> Any:
    return lambda _context: fix


@pytest.fixture
def account(tmp_path: Path) -> Path:
    folder = tmp_path / "routine"
    folder.mkdir()
    (folder / "routine.yaml").write_text(
        "# as a person wrote it\nname: account\nsteps:\n"
        '  - {id: find, type: tool.call, tool: find, args: {name: "{{ name }}"}, save_as: user,'
        " effect: read}\n"
        "  - {id: close, type: tool.call, tool: close,"
        ' args: {user: "{{ user.id }}", plan: basic}, save_as: done}\n'
        '  - {id: end, type: return, value: "{{ done }}"}\n'
    )
    return folder


def find(name: str) -> dict[str, str]:
    return {"id": f"U-{name}", "name": name}


def close(user_id: str, plan: str = "basic") -> str:
    if plan == "basic":
        raise ValueError("there is no plan basic any more, it is called free")
    return f"{user_id} closed"


def test_a_renamed_argument_and_a_changed_constant_are_healed(
    memory: Memory, account: Path
) -> None:
    fix = Fix(strategy="modify_args", args={"user_id": "U-anabel", "plan": "free"}, reason="new")
    run = memory.run(account, {"name": "anabel"}, {"find": find, "close": close}, mended(fix))
    assert run.output == "U-anabel closed"
    proposed = memory.heal(run.run_id, dry_run=True)
    assert 'user_id: "{{ user.id }}"' in proposed.patch.replace("'", '"')
    assert memory.run(account, {"name": "bo"}, {"find": find, "close": close}).status == "failed"
    healing = memory.heal(run.run_id)
    assert (healing.old, healing.new) == ("account@1", "account@2")
    healed = memory.run(account, {"name": "bo"}, {"find": find, "close": close})
    assert healed.output == "U-bo closed", "it needs no fix any more, with other input too"
    assert memory.run("account@2", {"name": "cy"}, {"find": find, "close": close}).output
    (old, _) = kept_routines(memory.store)
    assert old.body is not None
    assert "as a person wrote it" in old.body["files"]["routine.yaml"]


def test_a_skipped_step_is_healed_with_its_default(memory: Memory, account: Path) -> None:
    fix = Fix(strategy="skip", default="nothing to do")
    run = memory.run(account, {"name": "anabel"}, {"find": find, "close": close}, mended(fix))
    memory.heal(run.run_id)
    healed = memory.run(account, {"name": "bo"}, {"find": find, "close": close})
    assert healed.output == "nothing to do"


def test_a_value_that_nothing_explains_is_refused(memory: Memory, account: Path) -> None:
    fix = Fix(strategy="modify_args", args={"user_id": "U-somebody-else", "plan": "free"})
    run = memory.run(account, {"name": "anabel"}, {"find": find, "close": close}, mended(fix))
    assert run.status == "ok"
    healing = memory.heal(run.run_id)
    assert healing.changed == []
    assert "nothing in the run explains it" in healing.refused[0]
    assert list(kept_routines(memory.store)) == []


ITEMS = """\
name: items
steps:
  - {id: read, type: tool.call, tool: look, effect: read, for_each: "{{ ids }}", as: one,
     args: {id: "{{ one }}", region: "{{ region }}"}, save_as: found}
  - {id: safe, type: tool.call, tool: check_fraud, effect: read, save_as: fraud}
  - {id: sure, type: assert, check: "not fraud.is_fraud"}
  - {id: end, type: return, value: "{{ found }}"}
"""


def test_what_held_for_one_item_or_one_run_is_not_made_a_rule(
    memory: Memory, tmp_path: Path
) -> None:
    folder = tmp_path / "items"
    folder.mkdir()
    (folder / "routine.yaml").write_text(ITEMS)

    def look(id: str, region: str) -> str:  # noqa: A002 - the tool's own name
        if id == "id-2222" and region != "us-east":
            raise ValueError("it lies in us-east")
        return f"{id} in {region}"

    def check_fraud() -> dict[str, bool]:
        raise ValueError("down")

    def fix(context: Any) -> Fix:
        if context["tool"] == "look":
            return Fix(strategy="modify_args", args={"id": "id-2222", "region": "us-east"})
        return Fix(strategy="skip", default={"is_fraud": False})

    given = {"ids": ["id-1111", "id-2222"], "region": "eu-west", "other": "us-east"}
    run = memory.run(folder, given, {"look": look, "check_fraud": check_fraud}, fix)
    assert run.status == "ok"
    healing = memory.heal(run.run_id)
    assert healing.changed == []
    assert "only some items" in healing.refused[0]
    assert "decides by its result" in healing.refused[1]


def test_an_argument_is_not_healed_to_what_happens_to_be_equal(
    memory: Memory, account: Path
) -> None:
    text = (account / "routine.yaml").read_text().replace("plan: basic", 'plan: "{{ plan }}"')
    (account / "routine.yaml").write_text(text)
    given = {"name": "anabel", "plan": "basic", "weight": "free-1250"}
    fix = Fix(strategy="modify_args", args={"user_id": "U-anabel", "plan": "free-1250"})
    run = memory.run(account, given, {"find": find, "close": close}, mended(fix))
    assert run.status == "ok"
    assert "nothing in the run explains it" in memory.heal(run.run_id).refused[0]


def test_a_routine_with_a_secret_and_an_answer_is_healed(memory: Memory, tmp_path: Path) -> None:
    folder = tmp_path / "secretive"
    folder.mkdir()
    (folder / "routine.yaml").write_text(
        "name: secretive\nsecrets: [{name: api_key}]\nsteps:\n"
        "  - {id: ask, type: prompt.user, prompt: {message: Who?, fields: [{name: who}]},"
        " save_as: said}\n"
        "  - {id: act, type: tool.call, tool: act, effect: read, save_as: done,"
        ' args: {key: "{{ api_key }}", name: "{{ said.who }}"}}\n'
        '  - {id: end, type: return, value: "{{ done }}"}\n'
    )

    def act(key: str, user: str) -> str:
        return f"hello {user}"

    def fix(context: Any) -> Fix:
        args = context["args"]
        return Fix(strategy="modify_args", args={"key": args["key"], "user": args["name"]})

    options: Any = {"secrets": {"api_key": "hunter2-hunter2"}}
    answers = {"ask": {"who": "Anabel Lee"}}
    run = memory.run(folder, {}, {"act": act}, fix, answers=answers, **options)
    assert run.output == "hello Anabel Lee"
    memory.heal(run.run_id)
    healed = memory.run(folder, {}, {"act": act}, answers={"ask": {"who": "Bo"}}, **options)
    assert (healed.failure, healed.output) == (None, "hello Bo")


def test_what_can_not_be_healed_is_told(memory: Memory, account: Path) -> None:
    good = {"find": find, "close": lambda **_args: "closed"}
    run = memory.run(account, {"name": "anabel"}, good)
    with pytest.raises(RoutineError, match="no step of this run was fixed"):
        memory.heal(run.run_id)
    fix = mended(Fix(strategy="skip", default=1))
    run = memory.run(account, {"name": "anabel"}, {"find": find, "close": close}, fix)
    (account / "routine.yaml").write_text("name: other\nsteps: []\n")
    with pytest.raises(RoutineError, match="changed since"):
        memory.heal(run.run_id)
    with pytest.raises(NotFound):
        memory.heal("nope")
