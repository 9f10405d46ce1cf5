"""An exported script does what the runner does with the routine, and needs no em."""

import json
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any, get_args

import pytest

from em.compiler.export.script import export_python
from em.errors import ExportError
from em.runner.engine import run_routine
from em.runner.package import Package
from em.runner.routine import Step

Outcome = dict[str, Any]


class Seen:
    """Tools that note how they were called."""

    def __init__(self, tools: dict[str, Any]) -> None:
        self.calls: list[Any] = []
        self.tools = {name: self._noting(name, tool) for name, tool in tools.items()}

    def _noting(self, name: str, tool: Any) -> Any:
        def call(**args: Any) -> Any:
            self.calls.append((name, args))
            return tool(**args)

        return call


def load(folder: Path) -> dict[str, Any]:
    """The script of a routine, as a module that can't import em."""
    source = export_python(Package(folder))
    assert "import em" not in source
    assert "from em" not in source
    module: dict[str, Any] = {"__name__": "script"}
    exec(code_of(source), module)
    return module


@lru_cache(maxsize=8)  # many tests run one routine
def code_of(source: str) -> Any:
    return compile(source, "script.py", "exec")


def by_the_script(folder: Path, data: Any, tools: dict[str, Any]) -> Outcome:
    module, seen = load(folder), Seen(tools)
    try:
        output = module["run"](data, seen.tools)
    except module["Failed"] as error:
        end: Any = ("failed", error.step_id)
    else:
        end = ("ok", output)
    return {"end": end, "calls": seen.calls}


def by_the_runner(folder: Path, data: Any, tools: dict[str, Any]) -> Outcome:
    seen = Seen(tools)
    ran = run_routine(folder, data, seen.tools)
    if ran.failure is not None:
        end: Any = ("failed", ran.failure.step_id)
    else:
        end = ("ok", ran.output)
    return {"end": end, "calls": seen.calls}


def same(folder: Path, data: Any, make_tools: Any) -> Outcome:
    """What both do; tools are made anew for each, since they may count."""
    script = by_the_script(folder, data, make_tools())
    runner = by_the_runner(folder, data, make_tools())
    assert script["end"][:2] == runner["end"][:2], script
    assert repr(script) == repr(runner)
    return script


@pytest.fixture
def routine(tmp_path: Path) -> Any:
    def write(steps: str, *, udf: str = "", head: str = "") -> Path:
        (tmp_path / "routine.yaml").write_text(f"name: test\n{head}\nsteps:\n{steps}")
        (tmp_path / "udf.py").write_text(udf)
        return tmp_path

    return write


# --- whole routines -------------------------------------------------------------------------------


STEPS = """
  - {id: fetch, type: tool.call, tool: fetch, effect: read, args: {url: "{{ url }}"}, save_as: raw}
  - {id: parse, type: udf.call, function: parse, args: {text: "{{ raw }}"}, save_as: rows}
  - {id: some, type: assert, check: "len(rows) > limit", message: "few in {{ url }}"}
  - {id: send, type: tool.call, tool: send,
     args: {to: "{{ only(rows, city='Lisbon').city }}", text: "{{ rows[0] }} of {{ len(rows) }}"},
     save_as: sent}
  - {id: end, type: return,
     value: {count: "{{ len(rows) }}", sent: ["{{ sent }}"],
             first: "{{ rows[0].city | upper }}", cost: "{{ rows[1].cost | float }}",
             note: "{{ note | default('-') }}"}}
"""
UDF = '''"""Functions."""

import csv
import io


def parse(text):
    return list(csv.DictReader(io.StringIO(text)))


if __name__ == "__main__":
    raise SystemExit("not here")
'''
HEAD = (
    "input_schema: {type: object, required: [url, limit], properties:"
    " {url: {type: string}, limit: {type: integer}, note: {type: array}}}\n"
    "output_schema: {type: [object, 'null']}"
)


def make_tools() -> dict[str, Any]:
    def fetch(url: str) -> str:
        return "city,cost\nLisbon,840\nPorto,120" if url != "none" else "city,cost"

    def send(to: str, text: str) -> str:
        if to == "Porto":
            raise ValueError("not there")
        return f"{to}:{text}"

    return {"fetch": fetch, "send": send}


@pytest.mark.parametrize(
    ("data", "end"),
    [
        ({"url": "u", "limit": 1}, "ok"),
        ({"url": "u", "limit": 1, "note": [1.5]}, "ok"),
        ({"url": "u", "limit": 7}, "failed"),
        ({"url": "none", "limit": 1}, "failed"),
        ({"url": 3, "limit": 1}, "failed"),
        ({"url": "u"}, "failed"),
        ({}, "failed"),
    ],
)
def test_every_kind_of_step_and_end(routine: Any, data: Any, end: str) -> None:
    done = same(routine(STEPS, udf=UDF, head=HEAD), data, make_tools)
    assert done["end"][0] == end


def test_a_coroutine_is_awaited(routine: Any) -> None:
    steps = """
  - {id: a, type: tool.call, tool: soon, args: {n: 1}, save_as: x}
  - {id: b, type: udf.call, function: twice, args: {n: "{{ x }}"}, save_as: y}
  - {id: c, type: return, value: ["{{ x }}", "{{ y }}"]}
"""

    async def soon(n: int) -> int:
        return n + 1

    folder = routine(steps, udf="async def twice(n):\n    return n * 2\n")
    ran = run_routine(folder, {}, {"soon": soon})
    assert load(folder)["run"]({}, {"soon": soon}) == ran.output == [2, 4]


def test_a_secret_comes_from_the_environment(routine: Any, monkeypatch: Any) -> None:
    steps = """
  - {id: a, type: tool.call, tool: t, args: {key: "{{ api_key }}"}, save_as: x}
  - {id: b, type: return, value: "{{ x }}"}
"""
    folder = routine(steps, head="secrets: [{name: api_key}]")
    module, tools = load(folder), {"t": lambda key: f"{len(key)} signs"}
    with pytest.raises(module["Failed"], match="EM_SECRET_API_KEY"):
        module["run"]({}, tools)
    monkeypatch.setenv("EM_SECRET_API_KEY", "hunter2-hunter2")
    assert module["run"]({}, tools) == "15 signs"


FIELDS = """
  - {id: some, type: let, value: "{{ [1, 2, 3] }}", save_as: numbers}
  - {id: odd, type: let, value: first, when: n > 1, save_as: kind}
  - {id: even, type: let, value: other, when: n < 1, save_as: kind}
  - id: read
    type: for_each
    over: {item: numbers}
    save_as: found
    steps: [{id: each, type: tool.call, tool: read, effect: read, args: {n: "{{ item }}"},
             save_as: tens}]
  - {id: small, type: assert, check: "n != 5", message: "{{ n }} is large"}
  - {id: last, type: tool.call, tool: write, args: {n: "{{ n }}", kind: "{{ kind }}"},
     save_as: last,
     expect: {type: object, required: [n], properties: {n: {maximum: 6}}}}
  - id: loop
    type: for_each
    over: {one: numbers, m: "every(found, 'tens')"}
    save_as: loop
    steps:
      - {id: big, type: let, value: "{{ one + m }}", when: one > 1, save_as: sum}
      - {id: said, type: tool.call, tool: write, args: {n: "{{ m }}", kind: "{{ one }}"},
         when: given(sum), save_as: said}
  - {id: early, type: return, value: ["{{ loop }}", "{{ kind }}", "{{ n }}"], when: n > 3}
  - {id: end, type: return, value: "{{ last.none }}"}
"""


@pytest.mark.parametrize(
    ("n", "end"),
    [(4, "ok"), (2, "failed"), (1, "failed"), (5, "failed"), (7, "failed"), (0, "failed")],
)
def test_conditions_loops_and_checks_of_steps(routine: Any, n: int, end: str) -> None:
    tools = {"read": lambda n: n * 10, "write": lambda n, kind: {"n": n, "kind": kind}}
    done = same(routine(FIELDS), {"n": n}, lambda: tools)
    assert done["end"][0] == end
    assert ("write" in [name for name, _ in done["calls"]]) == (n not in (1, 5))


def test_a_value_whose_step_was_skipped_reaches_no_tool(routine: Any) -> None:
    steps = """
  - {id: a, type: let, value: 1, when: n > 1, save_as: x}
  - {id: b, type: tool.call, tool: t, args: {x: "{{ x if given(x) else omitted }}"}}
  - {id: c, type: tool.call, tool: t, when: n > 0, args: {x: "{{ x }}"}}
"""
    for n, calls in ((2, 2), (0, 1), (1, 1)):
        done = same(routine(steps), {"n": n}, lambda: {"t": lambda **args: args})
        assert len(done["calls"]) == calls


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("retry", "{attempts: 2}"),
        ("timeout", "0.5"),
        ("idempotency_key", '"{{ x }}"'),
        ("on_error", "continue"),
        ("checks", "{pre: [x]}"),
        ("for_each", "[1]"),
    ],
)
def test_what_only_the_runner_does_is_refused_with_its_step(
    routine: Any, field: str, value: str
) -> None:
    folder = routine(f"  - {{id: a, type: tool.call, tool: t, {field}: {value}}}")
    with pytest.raises(ExportError) as caught:
        export_python(Package(folder))
    assert f"`{field}`" in str(caught.value)
    assert caught.value.place == f"step a, field {field}"
    assert "`em run`" in caught.value.fix


def test_every_field_of_a_step_is_printed_or_refused() -> None:
    """A new field is decided here: a script that ignores it would do something else."""
    known = """id type description when save_as for_each as retry on_error checks effect expect
        held tool args function check message value over steps max prompt timeout
        idempotency_key"""
    fields = {one for step in get_args(Step) for one in step.__struct_encode_fields__}
    assert fields <= {*known.split()}


def test_what_a_person_said_about_its_inputs_is_no_reason_to_refuse_a_routine(routine: Any) -> None:
    head = "review: {inputs: [find.name]}\nstruck: [a is as recorded]"
    folder = routine("  - {id: end, type: return, value: done}", head=head)
    assert by_the_script(folder, {}, {})["end"] == ("ok", "done")


@pytest.mark.parametrize(
    ("step", "says", "field"),
    [
        ("type: tool.call, tool: t, expect: {not: {}}", "'not' of JSON Schema", "expect"),
        ("type: return, value: .inf", "the number inf", "value"),
    ],
)  # fmt: skip
def test_other_steps_are_refused_likewise(routine: Any, step: str, says: str, field: str) -> None:
    with pytest.raises(ExportError) as caught:
        export_python(Package(routine(f"  - {{id: a, {step}}}")))
    assert says in str(caught.value)
    assert caught.value.place == f"step a, field {field}"


@pytest.mark.parametrize(
    ("steps", "data"),
    [
        ('  - {id: a, type: tool.call, tool: t, args: {x: "{{ ulr }}"}}', {"url": 1}),
        ('  - {id: a, type: tool.call, tool: t, args: {x: "{{ order.itms }}"}}', {"order": {}}),
        ('  - {id: a, type: return, value: "{{ order.items }}"}', {"order": {}}),
        ('  - {id: a, type: return, value: "{{ order.items }}"}', {"order": {"items": [1]}}),
        ('  - {id: a, type: return, value: "{{ class }}"}', {"class": [1, {"b": None}]}),
        ('  - {id: a, type: return, value: "{{ len(tools) }}"}', {"tools": "abc"}),
        ('  - {id: a, type: return, value: "{{ run }}{{ step }}"}', {"run": 1, "step": None}),
        ("  - {id: a, type: tool.call, tool: t, args: {class: 1, a b: 2}}", {}),
        ('  - {id: a, type: tool.call, tool: t, save_as: x}\n'
         '  - {id: b, type: return, value: "{{ x }}"}', {"x": 2}),
        ('  - {id: a, type: tool.call, tool: none_such}', {}),
        ('  - {id: a, type: tool.call, tool: t, save_as: len}\n'
         '  - {id: b, type: return, value: "{{ len }}"}', {}),
    ],
)  # fmt: skip
def test_odd_names_and_missing_things(routine: Any, steps: str, data: Any) -> None:
    same(routine(steps), data, lambda: {"t": lambda **args: sorted(args)})


# --- expressions ----------------------------------------------------------------------------------

SCOPE = {
    "url": "http://x",
    "n": 3,
    "rows": [{"a": 1, "b": "y", "tags": ["x"]}, {"a": 2, "b": "X", "tags": []}],
    "order": {"items": [5], "id": "#W1", "first name": "Ana", "deep": {"list": [{"k": 1.5}]}},
    "nothing": None,
    "words": ["b", "A", "c", "a", "B"],
    "number": "42",
    "empty": [],
    "odd": {"class": {"from": 7}},
}
EXPRESSIONS = """
url; n; rows[1].a; order.items; order['first name']; order.deep.list[0].k; nothing
n * 2 + 1; n // 2; n / 2; -n; len(rows) > 1; 1 < n < 5; n in [1, 3]
'x' not in url; not nothing; url and n; nothing or 'x'; 'a' if n > 2 else 'b'
[n, url]; {'a': n}; url[0:4]; rows[-1].b; words[n]
missing | default('x'); nothing | default(1); n | default(n + 1)
url | upper; number | trim; order.id | lower; nothing is none; url is not none
only(order.items); only(rows, b='X').a; only(where(rows, b='X')).a; only(rows); only(rows, b='z')
where(rows, c=1); where(rows, {'b': 'y'}); where(rows, a=at_most(1)); only(rows, a=at_least(2)).b
smallest(rows, 'a').b; largest(rows, 'a').b; common(rows, 'a'); every(rows, 'a'); distinct(words)
every(rows, 'a') | sum; merge(order, {'id': n}).id; only_key({'k': {'a': 1}}, a=1)
part_of(url, 'first word'); '1.5' | float; 'x' | float; between(url, 'h', ':')
shown(url, 'slug'); shown(url, 'snake'); later('2026-02-27', 3); later(url, 3)
later('9999-12-31', 3); later('2026-02-27', true)
lines(rows, '{a}: {b}'); shown(n, '.2f'); structure('[1, {"a": null}]'); structure('[NaN]')
structure(url); structure("{'a': (1,)}"); structure('a: 1\\nb: x').a
days('2024-05-01', '2024-05-03'); elapsed('2024-05-01', 1714608000, 'hours'); elapsed(url, n, 'x')
 quoted(url, 'shell'); part_of('src/b.py', 'module')
part_of('a/b.py', 'stem'); between(url, '\\nh', 'p', 'line'); stands_once(url, 'h', 'lines')
line_place(url, 'end'); line_place('a\\nb\\n', 'after', 'a\\n'); lists_only('a.py:1', 'a.py')
url not in words; line_place('b\\nd\\n', 'in order', '', 'c'); line_place(url, 'before', 'x')
only(rows, {'b': holding('y')}).a
1 / 0; n.x; nothing.x; ulr; order.itms; rows[7]; url.nothing; order.keys; [1, 2] + [3]
not (n == 3 and url); n - -1; only(order.deep.list).k; order["id"]
order == {'items': [5]}; n == 3 and nothing is none; "a \\"q\\" 'b'"; true; None; odd.class.from
url ~ n; n % 2; -n ** 2; (-n) ** 2; rows.0.a; url | upper | trim; n + n | default(1)
words | join('-')
2.567 | round(1); 2.5 | round; n | string; words | length; url | capitalize; not n is none
given(missing) and missing.x; not given(missing) or missing.x; missing.x if given(missing) else 0
given(order.deep.gone); given(order.id, n); nothing | string ~ 'x'; where(rows, b='X'); url[1:]
""".replace("\n", ";").split(";")
TEXTS = [
    "order {{ order.id }}",
    "{{ n }} of {{ rows }}",
    "{{ url }}{{ n }}",
    "<{{ nothing }}> {{ order }}",
    "'{{ url }}' \"{{ n }}\" \\ { }} {",
    '{{ "{{ quoted }}" }}',
    "{{ 'a' + url }} {{ 'b' }}",
    'a {{ "{% quoted %}" }} b {{ n }}',
    "x {{ missing }}",
    "{{ 1.5 }} {{ true }} {{ [0.5] }}",
    "{# gone #}a {{ n }}",
    "{{ n }}\t{{ '\"' }} é\n",
    "  {{ n }} {{- n }} ",
]


@pytest.mark.parametrize("value", [f"{{{{ {e.strip()} }}}}" for e in EXPRESSIONS if e.strip()])
def test_an_expression_means_the_same(routine: Any, value: str) -> None:
    folder = routine(f"  - {{id: a, type: return, value: {json.dumps(value)}}}")
    same(folder, SCOPE, dict)


@pytest.mark.parametrize("value", TEXTS)
def test_a_text_reads_the_same(routine: Any, value: str) -> None:
    folder = routine(f"  - {{id: a, type: return, value: {json.dumps(value)}}}")
    same(folder, SCOPE, dict)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("{{ rows | groupby('a') }}", "the filter 'groupby'"),
        ("{{ rows | map(attribute='a') | list }}", "the filter 'list'"),
        ("{{ order.gone | default(1) }}", "the filter 'default'"),
        ("{% for r in rows %}x{% endfor %}", "{% … %}"),
        ("{% if n %}x{% endif %}!", "{% … %}"),
        ("{{ url.encode() }}", "a method"),
        ("{{ order.items() }}", "a method"),
        ("{{ n is odd }}", "test 'odd'"),
        ("{{ n is not defined }}", "test 'defined'"),
        ("{{ zip(rows, rows) }}", "the function 'zip'"),
        ("{{ range(3) }}", "the function 'range'"),
        ("{{ 'a' if n }}", "condexpr"),
    ],
)
def test_what_has_no_counterpart_is_refused_with_its_place(
    routine: Any, value: str, says: str
) -> None:
    folder = routine(f"  - {{id: a, type: tool.call, tool: t, args: {{x: {json.dumps(value)}}}}}")
    with pytest.raises(ExportError) as caught:
        export_python(Package(folder))
    assert says in str(caught.value)
    assert caught.value.place == "step a, field args"


@pytest.mark.parametrize(
    ("udf", "says"),
    [
        ("def main():\n    pass", "'main' of its own"),
        ("from em import Memory\ndef f():\n    pass", "imports em"),
        ("import ast as json\ndef f():\n    pass", "'json' of its own"),
        ("import beside\ndef f():\n    pass", "imports beside"),
        ("def g():\n    pass", "no function 'f'"),
        ("def f(:", "must be Python"),
    ],
)
def test_a_udf_that_could_not_live_in_the_script_is_refused(
    routine: Any, udf: str, says: str
) -> None:
    folder = routine("  - {id: a, type: udf.call, function: f}", udf=udf)
    (folder / "beside.py").write_text("")
    with pytest.raises(ExportError, match=says):
        export_python(Package(folder))


def test_a_udf_may_import_what_the_script_imports(routine: Any) -> None:
    udf = "import importlib\nfrom typing import Any, Mapping\n\n\ndef f(x: Any) -> Any:\n"
    udf += "    return isinstance(x, Mapping), importlib.import_module('json').dumps(x)\n"
    steps = "  - {id: a, type: udf.call, function: f, args: {x: {y: 1}}, save_as: out}\n"
    folder = routine(steps + "  - {id: b, type: return, value: '{{ out[1] }}'}", udf=udf)
    assert same(folder, {}, dict)["end"] == ("ok", '{"y": 1}')


# --- the file -------------------------------------------------------------------------------------


def test_the_script_runs_alone_and_reads_well(routine: Any, tmp_path: Path) -> None:
    folder = routine(STEPS, udf=UDF, head=HEAD)
    script = tmp_path / "alone" / "script.py"
    script.parent.mkdir()
    script.write_text(export_python(Package(folder)))
    (script.parent / "tools.py").write_text(
        "def fetch(url):\n    return 'city,cost\\nLisbon,840\\nPorto,120'\n"
        "def send(to, text):\n    return to\n"
    )
    (script.parent / "in.json").write_text('{"url": "u", "limit": 1}')
    # -S leaves out what is installed, em among it.
    args = [sys.executable, "-I", "-S", "script.py", "--input", "in.json", "--tools", "tools.py"]

    def run(*more: str) -> Any:
        return subprocess.run(
            [*args, *more], cwd=script.parent, capture_output=True, text=True, stdin=-3, check=False
        )

    done = run()
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {
        "count": 2,
        "sent": ["Lisbon"],
        "first": "LISBON",
        "cost": 120,
        "note": "-",
    }
    ruff = [sys.executable, "-m", "ruff"]
    said = subprocess.run(
        [*ruff, "check", "--isolated", "--line-length", "100", str(script)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 0, said.stdout


def test_a_script_takes_typed_json_and_tells_wrong_arguments(routine: Any, tmp_path: Path) -> None:
    folder = routine(STEPS, udf=UDF, head=HEAD)
    (tmp_path / "script.py").write_text(export_python(Package(folder)))
    (tmp_path / "tools.py").write_text(
        "def fetch(url):\n    return 'city,cost\\nLisbon,840\\nPorto,120'\n"
        "def send(to, text):\n    return to\n"
    )
    (tmp_path / "bom.json").write_bytes(b'\xef\xbb\xbf{"url": "u", "limit": 1}')
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "cut.py").write_text("x = (")

    def run(*args: str, stdin: str = "") -> Any:
        return subprocess.run(
            [sys.executable, "-I", "-S", "script.py", *args],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            input=stdin,
            check=False,
        )

    typed = '{"url": "u", "limit": 1}'
    for way in (typed, "bom.json", "-"):
        done = run("--input", way, "--tools", "tools.py", stdin=typed)
        assert (done.returncode, done.stderr) == (0, ""), way
    for args, says in (
        (("--input", "none.json"), "none.json"),
        (("--input", "."), "IsADirectoryError"),
        (("--input", "{"), "JSONDecodeError"),
        (("--input", "tools.py"), "JSONDecodeError"),
        (("--input", "list.json"), "list.json: expected a JSON object"),
        (("--tools", "."), "TypeError"),
        (("--tools", "./d"), "./d"),
        (("--tools", "none.py"), "none.py"),
        (("--tools", "no_such_module"), "no_such_module"),
        (("--tools", "cut.py"), "cut.py"),
    ):
        wrong = run(*args)
        assert (wrong.returncode, "Traceback" in wrong.stderr) == (2, False), wrong.stderr
        assert says in wrong.stderr


def test_a_hostile_routine_gets_no_code_into_the_script(routine: Any) -> None:
    evil = '"""\nimport os; os.abort()\n"""'
    steps = (
        f"  - {{id: {json.dumps(evil)}, description: {json.dumps(evil)}, type: tool.call,"
        f" tool: {json.dumps(evil)}, args: {{{json.dumps(evil)}: {json.dumps(evil)}}},"
        f" save_as: {json.dumps(evil)}}}"
    )
    folder = routine(steps, head=f"description: {json.dumps(evil)}")
    done = same(folder, {}, lambda: {evil: lambda **args: len(args)})
    assert done["calls"] == [(evil, {evil: evil})]
