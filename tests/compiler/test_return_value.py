"""What a routine returns is explained by all its traces; it never repeats what one agent said."""

from pathlib import Path
from typing import Any

import pytest

from em.compiler.compile_trace import compile_several, compile_trace
from em.compiler.draft import Draft, GivenUdfs
from em.compiler.package_files import write_package
from em.runner.engine import run_routine
from em.runner.routine import ReturnStep
from em.settings import AllowSettings
from em.traces.trace import Message, Mission, ToolCall, Trace, as_kept

FILES = [("mon", 3, "Monday"), ("tue", 7, "Tuesday"), ("wed", 12, "Wednesday"), ("thu", 5, "Thu")]


def counted(file: str, number: int, answer: Any, *, looks: bool) -> Trace:
    """A session that counts the lines of a file into another one."""
    goal = f"count the TODO lines of {file}.txt into {file}.count"
    commands = [(f"grep -c TODO {file}.txt > {file}.count", "")]
    commands += [(f"cat {file}.count", str(number))] if looks else []
    calls = [ToolCall(tool="Bash", args={"command": one}, result=said) for one, said in commands]
    events: list[Any] = [Message(role="user", text=goal), *calls]
    return Trace(mission=Mission(goal), events=events, outcome="success", final_output=answer)


def learnt(answer: str, *, looks: bool = True) -> Draft:
    traces = [
        counted(file, n, answer.format(file=file, n=n, day=day), looks=looks)
        for file, n, day in FILES
    ]
    return compile_several([as_kept(one, f"t{n}") for n, one in enumerate(traces)]).draft


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "fri.txt").write_text("TODO a\nTODO b\nx\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def output(draft: Draft, here: Path) -> Any:
    write_package(draft, here / "package", GivenUdfs())
    allow = AllowSettings(commands=["grep", "cat"], folders=["."])
    request = "count the TODO lines of fri.txt into fri.count"
    result = run_routine(here / "package", {"request": request}, allow=allow)
    assert result.status == "ok", result
    assert (here / "fri.count").read_text() == "2\n"
    return result.output


def test_words_that_all_traces_explain_are_returned(here: Path) -> None:
    draft = learnt("{file}.txt has {n} TODO lines; the count is in {file}.count.")
    assert output(draft, here) == "fri.txt has 2 TODO lines; the count is in fri.count."


def test_a_number_that_no_result_shows_is_never_returned(here: Path) -> None:
    draft = learnt("{file}.txt has {n} TODO lines.", looks=False)
    assert output(draft, here) is None
    assert any("nothing explains" in one.note for one in draft.explained)


def test_a_word_that_differs_and_is_not_explained_takes_the_words_with_it(here: Path) -> None:
    draft = learnt("{file}.txt ({day}) has {n} TODO lines.")
    assert output(draft, here) == "2"


def test_short_words_of_the_request_are_not_those_of_the_first_trace() -> None:
    def renamed(file: str, old: str, new: str) -> Trace:
        goal = f"rename the column {old} to {new} in {file}.csv"
        command = f"mytool rename {old} {new} {file}.csv"
        return Trace(
            mission=Mission(goal),
            events=[
                Message(role="user", text=goal),
                ToolCall(tool="Bash", args={"command": command}, result=""),
            ],
            outcome="success",
            final_output=f"Renamed `{old}` to `{new}` in {file}.csv.",
        )

    rows = [("q1", "amt", "amount"), ("q2", "cust", "customer"), ("no", "dt", "date")]
    rows += [("so", "qty", "quantity"), ("ea", "prc", "price")]
    draft = compile_several([as_kept(renamed(*row), row[0]) for row in rows]).draft
    [value] = [step.value for step in draft.routine.steps if isinstance(step, ReturnStep)]
    assert value is None or not any(word in value for row in rows for word in row)


def test_a_field_that_nothing_explains_is_left_out_of_an_object() -> None:
    traces = [
        counted(file, n, {"file": f"{file}.txt", "seconds": n * 31}, looks=True)
        for file, n, _ in FILES
    ]
    draft = compile_several([as_kept(one, f"t{n}") for n, one in enumerate(traces)]).draft
    [value] = [step.value for step in draft.routine.steps if isinstance(step, ReturnStep)]
    assert value.keys() == {"file"}


def test_a_trial_whose_words_are_not_the_recorded_ones_is_not_right() -> None:
    # Only t3 shows that the number varies: without it, "3" would be returned as a constant.
    rows = [("mon", 3), ("tue", 3), ("wed", 3), ("thu", 5)]
    traces = [counted(f, n, f"{f}.txt has {n} TODO lines.", looks=True) for f, n in rows]
    draft = compile_several([as_kept(one, f"t{n}") for n, one in enumerate(traces)]).draft
    assert draft.trials.count("right") == 3
    assert draft.trials.count("wrong") == 0


def looked(answer: str, tool: str = "list_files", result: Any = ("a.py", "b.py")) -> Draft:
    """What one trace of an agent that only looked becomes."""
    call = ToolCall(tool=tool, args={"folder": "/srv/shop"}, result=result, effect="read")
    mission = Mission("look at /srv/shop", {"folder": "/srv/shop"})
    return compile_trace(
        Trace(mission=mission, events=[call], outcome="success", final_output=answer)
    )


@pytest.mark.parametrize(
    "answer",
    [
        "Based on my analysis of /srv/shop: it has a dual structure with tests beside the code.",
        "There are two files.",
        "I've created a CLAUDE.md file.",
        "There are 2 files: a.py, b.py.",
    ],
)
def test_what_one_agent_said_of_what_it_saw_is_not_said_of_anything_else(
    answer: str, tmp_path: Path
) -> None:
    draft = looked(answer)
    write_package(draft, tmp_path / "package", GivenUdfs())
    seen = {"list_files": lambda folder: [f"{folder}/main.go"]}
    result = run_routine(tmp_path / "package", {"folder": "/srv/other"}, seen)
    assert (result.status, result.output) == ("ok", ["/srv/other/main.go"])
    (note,) = [one.note for one in draft.explained if one.place == "output"]
    assert "one trace does not show which words" in note


def test_the_last_result_is_the_agents_last_though_nothing_used_it(tmp_path: Path) -> None:
    calls = [
        ToolCall(tool="get_order", args={"order": "W1"}, result={"user": "u9"}, effect="read"),
        ToolCall(tool="get_user", args={"user": "u9"}, result={"tier": "gold"}, effect="read"),
    ]
    answer = "She is one of the best members."
    mission = Mission("how good is the customer of W1?", {"order": "W1"})
    trace = Trace(mission=mission, events=calls, outcome="success", final_output=answer)
    write_package(compile_trace(trace), tmp_path / "package", GivenUdfs())
    seen = {
        "get_order": lambda order: {"user": f"u-{order}"},
        "get_user": lambda user: {"tier": user},
    }
    result = run_routine(tmp_path / "package", {"order": "W2"}, seen)
    assert (result.status, result.output) == ("ok", {"tier": "u-W2"}), result


def test_words_around_what_was_read_are_said_again(tmp_path: Path) -> None:
    draft = looked("The shop is run by Mara-Lindqvist.", "get_owner", {"name": "Mara-Lindqvist"})
    write_package(draft, tmp_path / "package", GivenUdfs())
    seen = {"get_owner": lambda folder: {"name": "Bo-Adeyemi"}}
    result = run_routine(tmp_path / "package", {"folder": "/srv/other"}, seen)
    assert result.output == "The shop is run by Bo-Adeyemi."
