"""What a trace called is bound to the real functions, where they are given."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from em.compiler.compile_trace import compile_trace_file
from em.compiler.replay_world import NotReproduced
from em.errors import UsageError
from em.runner.authorship import WRITTEN_BY, is_model_written, render_marks
from em.runner.engine import run_routine
from em.runner.validation import validate
from em.trust import content_hash, revoke, trust

TRACE = {
    "mission": {"goal": "total", "input_summary": {"text": "lisbon,840"}},
    "events": [
        {"type": "udf_call", "function": "parse", "args": {"text": "lisbon,840"},
         "result": ["lisbon", "840"]},
        {"type": "udf_call", "function": "price", "args": {"row": ["lisbon", "840"]},
         "result": {"city": "lisbon", "cost": 840}},
    ],
    "final_output": {"city": "lisbon", "cost": 840},
}  # fmt: skip
CODE = """
SIGN = ","
def parse(text):
    return tuple(text.split(SIGN))
async def price(row):
    return {"city": row[0], "cost": int(row[1])}
"""


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    (tmp_path / "trace.json").write_text(json.dumps(TRACE))
    return tmp_path / "trace.json"


def test_a_file_of_functions_becomes_the_routines_own(tmp_path: Path, trace: Path) -> None:
    (tmp_path / "mine.py").write_text(CODE)
    compile_trace_file(trace, tmp_path / "r", udfs=str(tmp_path / "mine.py"))
    assert (tmp_path / "r" / "udf.py").read_text() == CODE
    assert validate(tmp_path / "r") == []
    (tmp_path / "mine.py").unlink()
    assert run_routine(tmp_path / "r", {"text": "porto,7"}).output == {"city": "porto", "cost": 7}


def test_functions_of_a_module_are_imported_and_the_others_are_stubs(
    tmp_path: Path, trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "em_test_pack").mkdir()
    (tmp_path / "em_test_pack" / "rows.py").write_text(CODE.partition("async")[0])
    monkeypatch.syspath_prepend(str(tmp_path))
    compile_trace_file(trace, tmp_path / "r", udfs="em_test_pack.rows")
    text = (tmp_path / "r" / "udf.py").read_text()
    assert "from em_test_pack.rows import parse\n" in text
    assert "def price(row):" in text
    assert validate(tmp_path / "r") == []
    stub = run_routine(tmp_path / "r", {"text": "porto,7"}).reason
    assert stub is not None
    assert "write price" in stub.message
    price = {"price": lambda row: {"city": row[0], "cost": int(row[1])}}
    done = run_routine(tmp_path / "r", {"text": "porto,7"}, udfs=price)
    assert done.output == {"city": "porto", "cost": 7}
    del sys.modules["em_test_pack.rows"]


def test_functions_that_cannot_be_imported_are_verified_and_left_as_stubs(
    tmp_path: Path, trace: Path
) -> None:
    called: list[Any] = []
    udfs = {
        "parse": lambda text: called.append(text) or text.split(","),
        "price": lambda row: {"city": row[0], "cost": int(row[1])},
    }
    compile_trace_file(trace, tmp_path / "r", udfs=udfs)
    assert called == ["lisbon,840"]
    assert "def parse(text):" in (tmp_path / "r" / "udf.py").read_text()


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("def parse(text): return text", 'the function returns "lisbon,840"'),
        ("def parse(text): raise KeyError(text)", "the function raised KeyError"),
        ("def parse(words): return words", "the function raised TypeError"),
        ("def parse(text): return object()", "can't be stored"),
    ],
)
def test_a_function_that_does_not_give_what_was_recorded_is_told_side_by_side(
    tmp_path: Path, trace: Path, code: str, says: str
) -> None:
    (tmp_path / "mine.py").write_text(code)
    with pytest.raises(NotReproduced) as caught:
        compile_trace_file(trace, tmp_path / "r", udfs=str(tmp_path / "mine.py"))
    assert 'parse({"text":"lisbon,840"}) returned ["lisbon","840"] in the trace' in str(
        caught.value
    )
    assert says in str(caught.value)
    assert caught.value.data["recorded"] == ["lisbon", "840"]
    assert not (tmp_path / "r").exists(), "nothing is written"


def test_a_models_functions_are_taken_once_they_are_read_and_their_mark_goes_with_them(
    tmp_path: Path, trace: Path
) -> None:
    (tmp_path / "p").mkdir()
    file = tmp_path / "p" / "udf.py"
    file.write_text(CODE)
    (tmp_path / "p" / WRITTEN_BY).write_text(render_marks({"udf.py": CODE.encode()}, "acme/1"))
    with pytest.raises(UsageError, match="em trust"):
        compile_trace_file(trace, tmp_path / "r", udfs=str(file))
    trust(content_hash(CODE.encode()), file, len(CODE))
    try:
        compile_trace_file(trace, tmp_path / "r", udfs=str(file))
    finally:
        revoke(content_hash(CODE.encode()), file)
    assert is_model_written(tmp_path / "r", "udf.py")
    assert "acme/1" in (tmp_path / "r" / WRITTEN_BY).read_text()
