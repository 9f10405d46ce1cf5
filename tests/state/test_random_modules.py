"""Modules of random records: mypy strict accepts them, and they import in a clean interpreter."""

import subprocess
import sys
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.state.test_generated_module import NAMES, VALUES

from em import Memory
from strategies import examples

TYPES = st.one_of(st.sampled_from(["Trip", "class", "Any", "State", "Money", "1", "é"]), NAMES)


@settings(
    max_examples=examples(3),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],  # each example takes seconds
)
@given(
    st.lists(
        st.lists(
            st.tuples(
                TYPES.map(lambda name: "".join(filter(str.isprintable, name)).strip() or "T"),
                st.dictionaries(NAMES, VALUES, min_size=1, max_size=6),
            ),
            min_size=1,
            max_size=12,
        ),
        min_size=8,
        max_size=8,
    )
)
def test_mypy_and_a_clean_interpreter_accept_them(
    tmp_path_factory: Any, worlds: list[list[tuple[str, dict[str, Any]]]]
) -> None:
    folder: Path = tmp_path_factory.mktemp("modules")
    files = []
    for number, records in enumerate(worlds):
        with Memory(":memory:") as memory:
            for type_, record in records:
                memory.observe("ana", record, type=type_)
            files.append(folder / f"state_{number}.py")
            files[-1].write_text(memory.checkpoint("ana").code)
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-incremental", *map(str, files)],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )
    assert checked.returncode == 0, checked.stdout
    imports = "; ".join(f"import {file.stem}; {file.stem}.State()" for file in files)
    run = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.append('.'); {imports}"],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )
    assert run.returncode == 0, run.stderr
