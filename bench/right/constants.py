"""Two traces that differ in a name: a routine must not have the name of one of them as a constant.

The cases are shell commands and small web pages, as in MiniWoB. Each routine is compiled from two
traces and run in a third world, in which neither name should be used.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from bench.figure import Figure
from bench.right.verdict import Tally, Verdict, zero

COLUMNS = ("generalised", "asked", "refused", "constant", "wrong")
READS = ("observe", "list_files")
Called = tuple[str, dict[str, Any], Any]


class Task(NamedTuple):
    """What was asked, and the calls with their results."""

    goal: str
    calls: Sequence[Called]


class Case(NamedTuple):
    """A kind of task, by the names that differ: of two traces and of a third world."""

    make: Callable[..., Task]
    names: tuple[Sequence[str], Sequence[str], Sequence[str]]


def _remove(file: str) -> Task:
    return Task(f"Delete the file {file}", [("bash", {"command": f"rm {file}"}, "")])


def _remove_unsaid(file: str) -> Task:
    return Task("Clean up", [("bash", {"command": f"rm {file}"}, "")])


def _remove_listed(file: str) -> Task:
    return Task(
        "Delete the log file",
        [
            ("list_files", {"folder": "."}, ["README.md", file, "setup.py"]),
            ("delete_file", {"path": file}, "deleted"),
        ],
    )


def _move(old: str, new: str) -> Task:
    command = ["mv", old, new]
    return Task(f"Rename {old} to {new}", [("execute", {"argv": command}, {"exit_code": 0})])


def _write(file: str) -> Task:
    args = {"path": f"out/{file}", "text": "done\n"}
    return Task(f"Write the marker {file}", [("write_file", args, {"bytes": 5})])


def _commit(branch: str) -> Task:
    return Task(
        f"Push the branch {branch}",
        [
            ("bash", {"command": f"git checkout {branch}"}, f"Switched to branch '{branch}'"),
            ("bash", {"command": f"git push origin {branch}"}, "done"),
        ],
    )


def _page(label: str, others: Sequence[str] = ("Help", "Back")) -> list[dict[str, str]]:
    """The elements of a page, with ids that depend on the label."""
    labels = [others[0], label, *others[1:]]
    return [{"ref": f"e{sum(map(ord, text))}", "text": text} for text in labels]


def _ref(label: str) -> str:
    return _page(label)[1]["ref"]


def _click(label: str) -> Task:
    page: Called = ("observe", {}, {"elements": _page(label)})
    return Task(f'Click on the "{label}" button.', [page, ("click", {"ref": _ref(label)}, "ok")])


def _click_unsaid(label: str) -> Task:
    page: Called = ("observe", {}, {"elements": _page(label)})
    return Task("Close the dialog.", [page, ("click", {"ref": _ref(label)}, "ok")])


def _click_blind(label: str) -> Task:
    return Task("Close the dialog.", [("click", {"ref": _ref(label)}, "ok")])


def _enter(text: str) -> Task:
    return Task(
        f'Enter "{text}" into the text field and press Submit.',
        [
            ("observe", {}, {"elements": _page("Submit")}),
            ("type_text", {"ref": "field", "text": text}, "ok"),
            ("click", {"ref": _ref("Submit")}, "ok"),
        ],
    )


def _choose(option: str) -> Task:
    page = {"options": [{"label": one, "value": one.lower()} for one in ("Blue", option, "Red")]}
    chosen = {"ref": "list", "value": option.lower()}
    return Task(
        f"Select {option} from the list.", [("observe", {}, page), ("choose", chosen, "ok")]
    )


CASES = {
    "shell: rm FILE": Case(_remove, (["report.txt"], ["notes.txt"], ["draft.md"])),
    "shell: rm FILE, not named": Case(
        _remove_unsaid, (["report.txt"], ["notes.txt"], ["draft.md"])
    ),
    "shell: delete a listed file": Case(_remove_listed, (["a.log"], ["build.log"], ["run7.log"])),
    "shell: mv OLD NEW": Case(_move, (["a.py", "b.py"], ["one.c", "two.c"], ["x.rs", "y.rs"])),
    "shell: write out/FILE": Case(_write, (["alpha.ok"], ["beta.ok"], ["gamma.ok"])),
    "shell: git push BRANCH": Case(_commit, (["fix-login"], ["docs-2"], ["speed"])),
    "page: click the button named": Case(_click, (["Okay"], ["Cancel"], ["Later"])),
    "page: click a button, not named": Case(_click_unsaid, (["Okay"], ["Cancel"], ["Later"])),
    "page: click without looking": Case(_click_blind, (["Okay"], ["Cancel"], ["Later"])),
    "page: enter the text": Case(_enter, (["Alberta"], ["Ming"], ["Joaquin"])),
    "page: select the option": Case(_choose, (["Green"], ["Violet"], ["Orange"])),
}


def constants(*, verbose: bool) -> Iterator[Figure]:
    """Compile each case from its two traces, and run it in the third world."""
    tally = Tally("two traces that differ", columns=COLUMNS, verbose=verbose)
    for name, case in CASES.items():
        tally.add(name.partition(":")[0], name, _one(case))
    tally.show()
    found = tally.count("constant", "wrong")
    yield zero("constants of one of two traces, or other wrong calls", found, len(CASES))


def _one(case: Case) -> Verdict:
    from em import Memory
    from em.errors import EmError
    from em.runner.package import find_routine, texts_of

    tasks = [case.make(*names) for names in case.names]
    own = [text for names in case.names[:2] for text in marks(names)]
    with Memory(":memory:") as memory:
        ids = [memory.add_trace(_trace(task)) for task in tasks[:2]]
        try:
            routine = memory.compile(ids)
        except EmError as error:
            return Verdict("refused", f"{error.code}: {error}")
        given = texts_of(find_routine(memory.store, routine.ref))["input.json"]
        for first, second, third in zip(*(marks(names) for names in case.names), strict=True):
            given = given.replace(first, third).replace(second, third)
        return _ran(memory, routine, given, tasks[2], own)


def marks(names: Sequence[str]) -> list[str]:
    """The texts by which a trace can be told from the others: the names, and their elements."""
    return [*names, *(_ref(name) for name in names), *(name.lower() for name in names)]


def _ran(memory: Any, routine: Any, given: str, third: Task, own: Sequence[str]) -> Verdict:
    import json

    from em.errors import EmError

    made: list[tuple[str, Mapping[str, Any]]] = []
    results = {name: result for name, _, result in third.calls}

    def tool(name: str) -> Callable[..., Any]:
        def call(**args: Any) -> Any:
            made.append((name, args))
            return results[name]

        return call

    try:
        ran = memory.run(routine, json.loads(given), {name: tool(name) for name in results})
        said = str(ran.failure or ran.pending_prompt or ran.reason or "")
        status = ran.status
    except EmError as error:
        said, status = str(error), "raised"
    for name, args in made:
        foreign = next((text for text in own if text in json.dumps(args)), None)
        if foreign is not None:
            return Verdict("constant", f"{name} {args} with the input {given.strip()}")
    writes = [(name, args) for name, args in made if name not in READS]
    if writes == [(name, args) for name, args, _ in third.calls if name not in READS]:
        return Verdict("generalised")
    if writes or status == "ok":
        return Verdict("wrong", f"{status}: {writes} with the input {given.strip()}")
    return Verdict("asked" if status == "needs_input" else "refused", f"{status}: {said}")


def _trace(task: Task) -> Any:
    from em.traces.trace import Message, Mission, ToolCall, Trace

    return Trace(
        mission=Mission(task.goal),
        events=[
            Message(role="user", text=task.goal),
            *(ToolCall(tool=tool, args=args, result=result) for tool, args, result in task.calls),
        ],
        outcome="success",
    )
