"""Shell commands are compiled with their values explained, and run again with others."""

import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from em import Memory
from em.compiler.calls import calls_of
from em.compiler.compile_trace import compile_several, compile_trace
from em.compiler.draft import Draft, write_package
from em.errors import MissingExtra, RoutineError
from em.runner.engine import run_routine
from em.runner.routine import ToolStep
from em.settings import AllowSettings
from em.traces.trace import Message, Mission, ToolCall, Trace, as_kept
from strategies import examples

Call = tuple[str, dict[str, Any], Any]


def trace(request: str, *calls: Call | tuple[str, dict[str, Any], Any, str]) -> Trace:
    events: list[Any] = [Message(role="user", text=request)]
    for tool, args, result, *error in calls:
        events.append(
            ToolCall(tool=tool, args=args, result=result, error=error[0] if error else None)
        )
    return Trace(mission=Mission(goal=request), events=events, outcome="success")


def compiled_from(session: Trace, **options: Any) -> Draft:
    return compile_trace(session, **options).draft


def bash(command: str, result: str = "") -> Call:
    return "Bash", {"command": command, "description": "Some words"}, result


def counted(file: str, report: str = "report.txt", number: str = "2") -> Trace:
    return trace(
        f"Count the pending lines of {file} into {report}",
        bash("ls -la", "orders.csv\nsales.csv\nreturns.csv"),
        ("TodoWrite", {"todos": [{"content": "count", "status": "done"}]}, "ok"),
        bash(f"grep -c pending {file} > {report}"),
        bash(f"cat {report}", number),
    )


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    project = tmp_path / "project"
    project.mkdir()
    for name, count in (("orders", 2), ("sales", 3), ("returns", 4)):
        (project / f"{name}.csv").write_text("x,pending\n" * count + "y,done\n")
    monkeypatch.chdir(project)
    return project


ALLOWED = AllowSettings(commands=["grep", "cat", "sed", "git", "touch"], folders=["."])


def run(draft: Any, folder: Path, given: dict[str, Any], **options: Any) -> Any:
    package = folder.parent / "package"
    _write(draft, package)
    return run_routine(package, given, allow=ALLOWED, **options)


def _write(draft: Any, package: Path) -> None:
    for file in package.iterdir() if package.exists() else ():
        file.unlink()
    write_package(draft, package)


def test_the_file_of_a_command_is_an_input_and_never_the_constant(here: Path):
    draft = compiled_from(counted("orders.csv"))
    tool = next(one for one in draft.routine.tools if one.effect == "write")
    assert tool.shell == "grep -c {{ pattern }} {{ file }} > {{ output }}"
    assert tool.via == "Bash"
    assert {"file", "output"} <= draft.routine.input_schema["properties"].keys()
    result = run(draft, here, {"pattern": "pending", "file": "sales.csv", "output": "out.txt"})
    assert result.status == "ok"
    assert (here / "out.txt").read_text() == "3\n"


def test_two_sessions_with_other_files_are_one_routine(here: Path):
    traces = [counted("orders.csv"), counted("sales.csv", number="3")]
    made = compile_several([as_kept(one, f"t{n}") for n, one in enumerate(traces)])
    request = "Count the pending lines of returns.csv into report.txt"
    result = run(made.draft, here, {"request": request})
    assert (result.status, (here / "report.txt").read_text()) == ("ok", "4\n")


def test_bookkeeping_is_left_out():
    draft = compiled_from(counted("orders.csv"))
    assert not any(tool.name == "TodoWrite" for tool in draft.routine.tools)


def test_each_command_has_its_own_effect():
    calls, _ = calls_of(
        trace(
            "x",
            bash("ls"),
            bash("git log -5"),
            bash("rm x"),
            bash("unknown"),
            bash("echo 'x"),
            ("str_replace_editor", {"command": "view", "path": "a.py"}, "text"),
            ("update_plan", {"plan": []}, "ok"),
        ),
        {},
    )
    effects = ["read", "read", "write", "write", "write", "read", "read"]
    assert [call.effect for call in calls] == effects
    assert calls[5].name == "Read"


def test_lessons_see_the_calls_as_the_agent_made_them():
    calls, _ = calls_of(counted("orders.csv"), {}, as_made=True)
    assert {call.name for call in calls} == {"Bash", "TodoWrite"}
    assert [call.effect for call in calls] == ["read", "read", "write", "read"]


def test_a_value_that_was_read_is_wired_to_its_read(here: Path):
    session = trace(
        "Tag the release",
        bash("cat version.txt", "1.4.2-rc7"),
        bash("git tag 1.4.2-rc7"),
    )
    draft = compiled_from(session)
    [read, tag] = [step for step in draft.routine.steps if isinstance(step, ToolStep)]
    assert tag.args == {"tag": f"{{{{ {read.save_as} }}}}"}


def test_code_is_run_as_recorded_or_not_at_all(here: Path):
    (here / "a.txt").write_text("one\n")
    session = trace("Fix one in a.txt", bash("sed -i 's/one/two/;s/x/y/' a.txt"))
    draft = compiled_from(session)
    given = dict(draft.input)
    assert run(draft, here, given).status == "ok"
    assert (here / "a.txt").read_text() == "two\n"
    for other in ("s/two/three/", "e touch pwned"):
        result = run(draft, here, {**given, "code": other})
        assert result.status in ("failed", "needs_input")
    assert (here / "a.txt").read_text() == "two\n"
    assert not (here / "pwned").exists()


def test_the_texts_of_a_substitution_are_values(here: Path):
    (here / "setup.cfg").write_text("version = 1.4.2\n")
    session = trace(
        "Change version 1.3.9 to 1.4.0 in setup.cfg",
        bash("sed -i 's/1.3.9/1.4.0/' setup.cfg"),
    )
    result = run(
        compiled_from(session), here, {"request": "Change version 1.4.2 to 1.5.0 in setup.cfg"}
    )
    assert result.status == "ok", result
    assert (here / "setup.cfg").read_text() == "version = 1.5.0\n"


def test_later_commands_run_in_the_folder_that_the_shell_is_in():
    session = trace(
        "x", bash("cd app && touch a.txt"), bash("touch b.txt; ls"), bash("cd ..; touch c.txt")
    )
    calls, _ = calls_of(session, {})
    assert [call.shell for call in calls] == [
        "cd {{ folder }} && touch {{ file }}",
        "cd {{ folder }} || exit 1\ntouch {{ file }}; ls",
        "cd {{ folder }} || exit 1\ncd {{ folder_2 }}; touch {{ file }}",
    ]
    assert calls[1].args["folder"] == "app"


def test_one_working_folder_for_all_calls_is_not_part_of_the_routine():
    def shell(text: str, folder: str) -> Call:
        return "exec_command", {"cmd": text, "workdir": folder}, ""

    calls, _ = calls_of(trace("x", shell("touch a", "/r"), shell("ls", "/r")), {})
    assert [call.shell for call in calls] == ["touch {{ file }}", "ls"]
    calls, _ = calls_of(trace("x", shell("touch a", "/r"), shell("ls", "/r/sub")), {})
    assert calls[1].shell == "cd {{ folder }} && ls"


def test_a_routine_without_a_request_is_named_after_what_it_does():
    done = trace(
        "",
        bash("git add a.py"),
        bash("git commit -m done"),
        bash("git status"),
        ("TodoWrite", {"todos": []}, "ok"),
    )
    assert compiled_from(done).routine.name == "git_commit"


def test_a_session_of_nothing_but_notes_is_refused():
    with pytest.raises(RoutineError, match="kept notes"):
        compiled_from(trace("Plan it", ("TodoWrite", {"todos": []}, "ok")))


def test_own_programs_of_a_project_are_read_from_its_settings(here: Path):
    (here / "em.yaml").write_text("commands: {mytool: read}\n")
    calls, _ = calls_of(trace("x", bash("mytool a"), bash("other a")), {})
    assert [call.effect for call in calls] == ["read", "write"]


attacks = st.one_of(
    st.sampled_from(
        [
            "; touch pwned", "$(touch pwned)", "`touch pwned`", "\ntouch pwned\n", "x > pwned",
            "' ; touch pwned '", "&& touch pwned", "| touch pwned", "-h", "*", "../x", "{{ 7*7 }}",
            "é；touch pwned",
        ]
    ),
    st.text(max_size=12),
)  # fmt: skip


@settings(
    max_examples=examples(40),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_no_input_of_a_compiled_routine_becomes_syntax(
    here: Path, data: st.DataObject, compiled: Any
):
    names = ("pattern", "file", "output")
    given = {name: data.draw(attacks, label=name) for name in names}
    given["file"] = data.draw(st.sampled_from(["orders.csv", given["file"]]))
    before = {path.name for path in here.iterdir()}
    run_routine(compiled, given, allow=AllowSettings(commands=["grep", "cat"], folders=["."]))
    made = {path.name for path in here.iterdir()} - before
    assert "pwned" not in made - {given["output"]}
    assert made <= {given["output"]}
    for name in made:
        (here / name).unlink()
    assert (here / "orders.csv").read_text() == "x,pending\n" * 2 + "y,done\n"


@pytest.fixture
def compiled(here: Path) -> Path:
    package = here.parent / "compiled"
    _write(compiled_from(counted("orders.csv")), package)
    return package


def test_a_memory_runs_what_it_compiled_from_sessions(here: Path):
    with Memory(":memory:") as memory:
        ids = [memory.add_trace(one) for one in (counted("orders.csv"), counted("sales.csv"))]
        kept = memory.compile(ids, name="count")
        (here / "em.yaml").write_text("allow: {commands: [grep, cat], folders: [.]}\n")
        request = "Count the pending lines of returns.csv into report.txt"
        result = memory.run(kept, {"request": request})
        assert result.status == "ok", result
        assert (here / "report.txt").read_text() == "4\n"


def test_without_the_extra_compiling_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "tree_sitter", None)
    with pytest.raises(MissingExtra) as missing:
        compiled_from(counted("orders.csv"))
    assert "em-core[shell]" in missing.value.fix
    # What only looks at traces, such as lessons and suggestions, goes on with what is known.
    calls, _ = calls_of(counted("orders.csv"), {})
    assert [call.effect for call in calls] == ["write", "read", "write", "write"]


def agents(name: str, *calls: Call) -> Trace:
    return msgspec.structs.replace(trace("Do it.", *calls), app={"name": name})


@pytest.mark.parametrize(
    ("agent", "tool", "args", "reason"),
    [
        ("claude-code", "Bash", {"command": "npm start", "run_in_background": True}, "background"),
        ("claude-code", "Task", {"prompt": "look"}, "without a model"),
        ("codex", "write_stdin", {"session_id": 1, "chars": "y"}, "goes on running"),
        ("openhands", "run_ipython", {"code": "x = 1"}, "session of Python"),
        ("swe-agent", "edit", {"start_line": 1, "end_line": 2}, "file that is open"),
    ],
)
def test_what_no_routine_can_do_again_is_refused_with_the_reason(
    agent: str, tool: str, args: dict[str, Any], reason: str
):
    with pytest.raises(RoutineError) as refused:
        compiled_from(agents(agent, (tool, args, "ok")))
    assert reason in refused.value.message
    # A user who has such a tool can compile it.
    assert compiled_from(agents(agent, (tool, args, "ok")), declared={tool: "write"})


def test_other_agents_may_have_tools_of_the_same_names():
    made = compiled_from(agents("shop", ("run", {"command": "belt"}, "ok"), ("submit", {}, "ok")))
    assert [tool.name for tool in made.routine.tools] == ["run", "submit"]


def test_a_tool_of_one_agent_is_what_others_call_otherwise():
    made = compiled_from(
        agents("openhands", ("run", {"command": "touch a.txt"}, ""), ("finish", {}, "done"))
    )
    assert [tool.shell for tool in made.routine.tools] == ["touch {{ file }}"]
    looked = agents("swe-agent", ("open", {"path": "a.py"}, "1:x"), bash("touch a.txt"))
    calls, _ = calls_of(looked, {})
    assert [call.effect for call in calls] == ["read", "write"]


def repaired(home: str, fault: str) -> Trace:
    """A session that looks at two things with commands, and fixes the one that is wrong."""
    mode, pump = ("summer", "running") if fault == "mode" else ("winter", "stuck")
    looks = [
        bash(f"head -n 1 {home}", f"mode: {mode}"),
        bash(f"tail -n 1 {home}", f"pump: {pump}"),
    ]
    fix = bash(f"chmod 600 {home}") if fault == "mode" else bash(f"touch {home}")
    again = [
        bash(f"head -n 1 {home}", "mode: winter"),
        bash(f"tail -n 1 {home}", "pump: running"),
        bash(f"cat {home}", "room: warm"),
    ]
    return trace(f"The room stays cold. Home: {home}.", *looks, fix, *again)


def test_repairs_that_were_learnt_from_commands_say_how_to_run_them():
    traces = [
        as_kept(repaired(f"H-7{n}1", "mode" if n % 2 else "pump"), f"t{n}") for n in range(1, 9)
    ]
    made = compile_several(traces, force=True)
    assert all(tool.shell for tool in made.draft.routine.tools)
