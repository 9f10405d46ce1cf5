"""Where sessions of a coding agent edit: what all explanations agree on, and nothing else."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from em.compiler.compile_trace import compile_several
from em.compiler.draft import Draft
from em.compiler.package_files import write_package
from em.errors import RoutineError
from em.runner.engine import run_routine
from em.settings import AllowSettings
from em.traces.trace import Message, Mission, ToolCall, Trace, as_kept

Files = Mapping[str, str]


def session(
    goal: str, before: Files, edits: Files, *, search: tuple[str, str] | None = None
) -> Trace:
    """A session that reads files and edits each; search: a command, and what it printed."""
    events: list[Any] = [Message(role="user", text=goal)]
    if search is not None:
        events.append(ToolCall(tool="Bash", args={"command": search[0]}, result=search[1]))
    for file, after in edits.items():
        given = {"file_path": f"/srv/{file}"}
        shown = "\n".join(f"{n:6}→{row}" for n, row in enumerate(before[file].splitlines(), 1))
        events.append(ToolCall(tool="Read", args=given, result=shown))
        events.append(ToolCall(tool="Write", args={**given, "content": after}, result="updated"))
    return Trace(app={"cwd": "/srv"}, mission=Mission(goal), events=events, outcome="success")


def learnt(*traces: Trace) -> Draft | None:
    kept = [as_kept(trace, f"t{number}") for number, trace in enumerate(traces)]
    try:
        return compile_several(kept, name="edit").draft
    except RoutineError:
        return None


def run(draft: Draft | None, request: str, files: Files, folder: Path) -> tuple[str, Files]:
    """Run a routine on these files; return its status and what became of them."""
    assert draft is not None
    write_package(draft, folder / "package")
    for file, text in files.items():
        (folder / "project" / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / "project" / file).write_text(text)
    allow = AllowSettings(folders=["."], commands=["grep"])
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder / "project")
        result = run_routine(folder / "package", {"request": request}, allow=allow)
    return result.status, {file: (folder / "project" / file).read_text() for file in files}


# --- a value that is replaced ---------------------------------------------------------------------

RELEASES = [("1.4.2", "1.5.0"), ("0.3.9", "0.4.0"), ("7.0.0", "7.0.1"), ("2.1.4", "3.0.0")]
RELEASE = "Release {}."


def project(version: str) -> dict[str, str]:
    return {
        "package.json": f'{{\n  "name": "kite",\n  "version": "{version}",\n  "main": "k.js"\n}}\n',
        "README.md": f"# kite\n\nnpm install kite@{version}\n",
    }


def released() -> Draft | None:
    return learnt(
        *(session(RELEASE.format(new), project(old), project(new)) for old, new in RELEASES)
    )


def test_a_value_is_replaced_in_each_file_that_had_it(tmp_path: Path) -> None:
    made = run(released(), RELEASE.format("9.9.0"), project("9.8.1"), tmp_path)
    assert made == ("ok", project("9.9.0"))


@pytest.mark.parametrize(
    "changed",
    [
        {"package.json": project("9.8.1")["package.json"].replace("k.js", "k-9.8.1.js")},
        {"README.md": project("9.8.1")["README.md"] + "\nOr take kite 9.8.1 by hand.\n"},
        {"README.md": project("8.0.0")["README.md"]},
    ],
    ids=["twice in a file", "twice in another file", "another one in another file"],
)
def test_nobody_knows_what_becomes_of_a_second_one(changed: Files, tmp_path: Path) -> None:
    files = {**project("9.8.1"), **changed}
    status, after = run(released(), RELEASE.format("9.9.0"), files, tmp_path)
    assert (status != "ok", after) == (True, files)


# --- a search that found what was changed ---------------------------------------------------------

NAMES = [("ttl", "seconds"), ("conns", "pool_size"), ("dir", "folder"), ("host", "mail_host")]
RENAME = "Rename the key {} to {}."


def settings(name: str) -> dict[str, str]:
    return {"app.yaml": f"debug: no\n{name}: x\n", "docs.md": f"# Keys\n\n- `{name}`: see there\n"}


def renamed() -> Draft | None:
    made = []
    for old, new in NAMES:
        found = f"./app.yaml:2:{old}: x\n./docs.md:3:- `{old}`: see there\n"
        search = (f"grep -rnw {old} .", found)
        made.append(session(RENAME.format(old, new), settings(old), settings(new), search=search))
    return learnt(*made)


def test_what_a_search_found_is_changed(tmp_path: Path) -> None:
    made = run(renamed(), RENAME.format("page", "sheet"), settings("page"), tmp_path)
    assert made == ("ok", settings("sheet"))


def test_a_file_that_no_session_changed_is_not_passed_over(tmp_path: Path) -> None:
    files = {**settings("page"), "code.go": 'var key = "page"\n'}
    status, after = run(renamed(), RENAME.format("page", "sheet"), files, tmp_path)
    assert (status != "ok", after) == (True, files)


# --- a line of a list -----------------------------------------------------------------------------

ADD = "Allow {}."
LISTED = ["otter.example", "heron.example", "badger.example", "stoat.example", "mole.example"]


def hosts(*names: str, tail: str = "") -> str:
    rows = "".join(f'    "{name}",\n' for name in names)
    return f"TIMEOUT = 30\n\nHOSTS = [\n{rows}]\n\nRETRIES = 3\n{tail}"


def allowed(*orders: tuple[str, ...]) -> Draft | None:
    """Learn from sessions that add the last name of each order: to its end, or sorted into it."""
    return learnt(
        *(
            session(
                ADD.format(names[-1]),
                {"hosts.py": hosts(*names[:-1])},
                {"hosts.py": hosts(*names)},
            )
            for names in orders
        )
    )


APPENDED = [
    ("zebra.example", "ape.example", "otter.example"),
    ("yak.example", "heron.example"),
    ("wolf.example", "toad.example", "badger.example"),
    ("lynx.example", "emu.example", "ox.example", "stoat.example"),
]


def test_a_line_is_added_at_the_end_of_a_list(tmp_path: Path) -> None:
    files = {"hosts.py": hosts("rat.example", "cat.example")}
    made = run(allowed(*APPENDED), ADD.format("mole.example"), files, tmp_path)
    assert made == ("ok", {"hosts.py": hosts("rat.example", "cat.example", "mole.example")})


@pytest.mark.parametrize(
    "text",
    [
        hosts("rat.example", "mole.example"),
        hosts("rat.example").replace("    ", "  "),
        hosts("rat.example", tail='\nOTHERS = [\n    "cat.example",\n]\n'),
        hosts("rat.example").replace("]\n", "] + MORE\n"),
        'HOSTS = ["rat.example"]\n',
    ],
    ids=["there already", "other indentation", "two lists", "another end", "on one line"],
)
def test_another_list_is_left_alone(text: str, tmp_path: Path) -> None:
    files = {"hosts.py": text}
    status, after = run(allowed(*APPENDED), ADD.format("mole.example"), files, tmp_path)
    assert (status != "ok", after) == (True, files)


IN_ORDER = [
    ("ape.example", "heron.example", "otter.example"),
    ("emu.example", "gnu.example"),
    ("badger.example", "lynx.example", "wolf.example"),
    ("cat.example", "ox.example", "stoat.example"),
]


def test_a_list_that_was_always_in_order_may_have_to_stay_so(tmp_path: Path) -> None:
    files = {"hosts.py": hosts("cat.example", "rat.example")}
    draft = allowed(*IN_ORDER)
    assert run(draft, ADD.format("mole.example"), files, tmp_path / "a") == ("needs_input", files)
    made = run(draft, ADD.format("tern.example"), files, tmp_path / "b")
    assert made == ("ok", {"hosts.py": hosts("cat.example", "rat.example", "tern.example")})


def test_a_line_is_added_where_its_place_is_in_order(tmp_path: Path) -> None:
    sorted_in = []
    for new, others in zip(LISTED, ("az", "dg", "ax", "px"), strict=False):
        before = [f"{sign}-host.example" for sign in others]
        after = sorted([*before, new])
        change = {"hosts.py": hosts(*before)}, {"hosts.py": hosts(*after)}
        sorted_in.append(session(ADD.format(new), *change))
    files = {"hosts.py": hosts("cat.example", "rat.example")}
    draft = learnt(*sorted_in)
    assert draft is not None
    assert draft.proof is not None
    assert draft.proof.count("right", "fresh inputs") == len(sorted_in)
    made = run(draft, ADD.format("mole.example"), files, tmp_path)
    assert made == ("ok", {"hosts.py": hosts("cat.example", "mole.example", "rat.example")})
