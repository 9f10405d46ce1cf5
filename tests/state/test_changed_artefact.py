"""A state's artefact that somebody edited never becomes code that runs."""

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from em import Memory
from em.errors import StateInvalid

CODE = "x: int = __import__('pathlib').Path('ran').touch() or 1; y"


def edit_field(body: Any) -> None:
    body["types"]["Trip"]["fields"]["city"]["name"] = CODE


def edit_nested_field(body: Any) -> None:
    body["types"]["Trip"]["fields"]["hotel"]["nested"]["fields"]["name"]["name"] = CODE


def edit_class(body: Any) -> None:
    body["types"]["Trip"]["name"] = f"Trip:\n    {CODE}: int = 1\nclass Other"


def edit_collection(body: Any) -> None:
    body["types"]["Trip"]["collection"] = CODE


def edit_constraint(body: Any) -> None:
    body["constraints"] = [
        {"id": f"a(): pass\n{CODE} = 1\ndef b", "severity": "info", "message": "m", "action": "x"}
    ]


def edit_to_keyword(body: Any) -> None:
    body["types"]["Trip"]["fields"]["city"]["name"] = "class"


@pytest.mark.parametrize(
    "edit",
    [
        edit_field,
        edit_nested_field,
        edit_class,
        edit_collection,
        edit_constraint,
        edit_to_keyword,
    ],
)
def test_an_edited_name_is_refused_and_nothing_runs(edit: Callable[[Any], None]) -> None:
    with Memory("em.db") as memory:
        memory.observe("ana", {"type": "Trip", "city": "Porto", "hotel": {"name": "Sol"}})
        memory.checkpoint("ana")
    rows = sqlite3.connect("em.db")
    (text,) = rows.execute("SELECT body FROM artefacts WHERE kind = 'state'").fetchone()
    body = json.loads(text)
    edit(body)
    rows.execute("UPDATE artefacts SET body = ? WHERE kind = 'state'", (json.dumps(body),))
    rows.commit()
    rows.close()
    with Memory("em.db") as memory:
        state = memory.state("ana")
        with pytest.raises(StateInvalid, match="expected a name that em gives"):
            print(state.code)
        with pytest.raises(StateInvalid):
            print(state.module)
    assert not Path("ran").exists()
