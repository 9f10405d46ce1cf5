"""An exported script does what the runner does with the routine, and needs no em."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from em.compiler.compile_trace import compile_trace, write_package
from em.compiler.export.python import export_python
from em.compiler.export.script.values import as_text
from em.errors import ExportError
from em.runner.engine import run_routine
from em.runner.expressions.language import compile_value
from em.runner.package import Package
from em.traces.trace import Trace
from em.values.canonical import identical
from strategies import traces, values

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
    exec(compile(source, "script.py", "exec"), module)
    return module


def by_the_script(folder: Path, data: Any, tools: dict[str, Any], answers: Any = None) -> Outcome:
    module, seen = load(folder), Seen(tools)
    try:
        output = module["run"](data, seen.tools, answers)
    except module["Failed"] as error:
        end: Any = ("failed", error.step_id)
    except module.get("NeedsInput", ()) as error:
        end = ("needs_input", error.step_id, error.message, error.fields)
    else:
        end = ("ok", output)
    return {"end": end, "calls": seen.calls}


def by_the_runner(folder: Path, data: Any, tools: dict[str, Any], answers: Any = None) -> Outcome:
    seen = Seen(tools)
    ran = run_routine(folder, data, seen.tools, answers=answers)
    if ran.failure is not None:
        end: Any = ("failed", ran.failure.step_id)
    elif ran.pending_prompt is not None:
        prompt = ran.pending_prompt
        end = ("needs_input", prompt.step_id, prompt.message, list(prompt.fields))
    else:
        end = ("ok", ran.output)
    return {"end": end, "calls": seen.calls}


def same(folder: Path, data: Any, make_tools: Any, answers: Any = None) -> Outcome:
    """What both do; tools are made anew for each, since they may count."""
    script = by_the_script(folder, data, make_tools(), answers)
    runner = by_the_runner(folder, data, make_tools(), answers)
    assert script["end"][:2] == runner["end"][:2]
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


@given(traces())
@settings(max_examples=150, deadline=None)
def test_what_any_trace_compiles_to_does_the_same_as_a_script(
    tmp_path_factory: pytest.TempPathFactory, trace: Trace
) -> None:
    draft = compile_trace(trace)
    folder = tmp_path_factory.mktemp("routine")
    write_package(draft, folder)

    def tools() -> dict[str, Any]:
        left = iter(draft.recording)
        return {item.name: lambda **_: next(left).result for item in draft.recording}

    done = same(folder, draft.input, tools, draft.answers)
    assert done["end"][0] == "ok"
    assert identical(done["end"][1], draft.output)
    assert identical(
        [list(call) for call in done["calls"]],
        [[item.name, item.args] for item in draft.recording],
    )


STEPS = """
  - {id: fetch, type: tool.call, tool: fetch, args: {url: "{{ url }}"}, save_as: raw,
     retry: {attempts: 3, backoff: 0.001, errors: [Busy]}}
  - {id: parse, type: udf.call, function: parse, args: {text: "{{ raw }}"}, save_as: rows,
     checks: {pre: ["len(raw) > 0"], post: ["result[0].city is defined", "len(result) > 1"]}}
  - {id: some, type: assert, check: "len(rows) > limit | default(1)", message: "few in {{ url }}"}
  - {id: ask, type: prompt.user, save_as: answer,
     prompt: {message: "Send {{ len(rows) }}?", fields: [{name: ok, type: confirm}]}}
  - {id: many, type: tool.call, when: answer.ok, tool: send, for_each: "{{ rows }}", as: row,
     parallel: 1, on_error: {default: nobody}, idempotency_key: "{{ url }}-{{ row.city }}",
     args: {to: "{{ row.city }}", text: "{{ row }} of {{ len(rows) }}"}, save_as: sent}
  - {id: late, type: tool.call, when: "not answer.ok", tool: send, on_error: continue,
     args: {to: x, text: "{{ gone }}"}, save_as: late}
  - {id: early, type: return, when: "late is defined and late is none", value: "{{ late }}"}
  - {id: end, type: return,
     value: {count: "{{ len(rows) }}", sent: "{{ sent }}", first: "{{ rows[0].city | upper }}"}}
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
    "input_schema: {type: object, required: [url], properties:"
    " {url: {type: string}, limit: {type: integer}}}\noutput_schema: {type: [object, 'null']}"
)


class Busy(Exception):
    pass


def make_tools() -> dict[str, Any]:
    tries = iter([Busy("later"), Busy("later"), None])

    def fetch(url: str) -> str:
        if (problem := next(tries)) is not None:
            raise problem
        return "city,cost\nLisbon,840\nPorto,120" if url != "none" else "city,cost"

    def send(to: str, text: str, idempotency_key: str = "") -> str:
        if to == "Porto":
            raise ValueError("not there")
        return f"{to}:{text}:{idempotency_key}"

    return {"fetch": fetch, "send": send}


@pytest.mark.parametrize(
    ("data", "answers", "end"),
    [
        ({"url": "u"}, {"ask": {"ok": True}}, "ok"),
        ({"url": "u"}, {"ask": {"ok": "no"}}, "ok"),
        ({"url": "u"}, None, "needs_input"),
        ({"url": "u"}, {"ask": {"ok": "perhaps"}}, "needs_input"),
        ({"url": "u"}, {"ask": {"other": 1}}, "needs_input"),
        ({"url": "u", "limit": 7}, {"ask": {"ok": True}}, "failed"),
        ({"url": "none"}, {"ask": {"ok": True}}, "failed"),
        ({"url": 3}, None, "failed"),
        ({}, None, "failed"),
    ],
)
def test_every_kind_of_step_and_end(routine: Any, data: Any, answers: Any, end: str) -> None:
    done = same(routine(STEPS, udf=UDF, head=HEAD), data, make_tools, answers)
    assert done["end"][0] == end


def test_side_by_side_with_retries_defaults_and_checks(routine: Any) -> None:
    steps = """
  - {id: a, type: tool.call, tool: work, for_each: [1, 2, 3, 4, 5], parallel: 3, save_as: got,
     retry: {attempts: 2, backoff: 0.001}, on_error: {default: -1}, args: {n: "{{ item }}"},
     checks: {pre: ["item > 0"], post: ["result != 40"]}}
  - {id: b, type: return, value: "{{ got }}"}
"""

    def tools() -> dict[str, Any]:
        tried: dict[int, int] = {}

        def work(n: int) -> int:
            tried[n] = tried.get(n, 0) + 1
            if n == 3 or (n == 2 and tried[n] == 1):
                raise ValueError("no")
            return n * 10

        return {"work": work}

    folder = routine(steps)
    script, runner = (go(folder, {}, tools()) for go in (by_the_script, by_the_runner))
    assert script["end"] == runner["end"] == ("ok", [10, 20, -1, -1, 50])
    assert sorted(map(repr, script["calls"])) == sorted(map(repr, runner["calls"]))
    assert by_the_script(routine(steps.replace("item > 0", "item > 1")), {}, tools())["end"] == (
        "failed",
        "a",
    )


def test_a_timeout_and_a_coroutine(routine: Any) -> None:
    steps = """
  - {id: a, type: tool.call, tool: soon, args: {n: 1}, save_as: x}
  - {id: b, type: tool.call, tool: never, timeout: 0.05, on_error: {default: gone}, save_as: y}
  - {id: c, type: udf.call, function: twice, args: {n: "{{ x }}"}, save_as: z}
  - {id: d, type: return, value: ["{{ x }}", "{{ y }}", "{{ z }}"]}
"""

    async def soon(n: int) -> int:
        return n + 1

    folder = routine(steps, udf="async def twice(n):\n    return n * 2\n")
    tools = {"soon": soon, "never": lambda: time.sleep(60)}
    ran = run_routine(folder, {}, tools)
    assert load(folder)["run"]({}, tools) == ran.output == [2, "gone", 4]


@pytest.mark.parametrize(
    ("steps", "data"),
    [
        ('  - {id: a, type: tool.call, tool: t, args: {x: "{{ ulr }}"}}', {"url": 1}),
        ('  - {id: a, type: tool.call, tool: t, args: {x: "{{ order.itms }}"}}', {"order": {}}),
        ('  - {id: a, type: return, value: "{{ order.items }}"}', {"order": {}}),
        ('  - {id: a, type: return, value: "{{ order.items }}"}', {"order": {"items": [1]}}),
        ('  - {id: a, type: tool.call, tool: t, for_each: "{{ x }}"}', {"x": "text"}),
        ('  - {id: a, type: tool.call, tool: t, for_each: [], save_as: x}', {}),
        ('  - {id: a, type: return, value: "{{ class }}"}', {"class": [1, {"b": None}]}),
        ('  - {id: a, type: return, value: "{{ len(tools) }}"}', {"tools": "abc"}),
        ('  - {id: a, type: return, value: "{{ run ~ step }}"}', {"run": 1, "step": None}),
        ("  - {id: a, type: tool.call, tool: t, args: {class: 1, a b: 2}}", {}),
        ('  - {id: a, type: tool.call, tool: t, when: "x > 1", save_as: y}', {"x": 2}),
        ('  - {id: a, type: assert, check: "x", save_as: y}\n'
         '  - {id: b, type: return, value: "{{ y }}"}', {"x": 1}),
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
}
EXPRESSIONS = """
url; n; rows[1].a; order.items; order['first name']; order.deep.list[0].k; nothing
n * 2 + 1; n // 2; n / 2; n ** 2; n % 2; -n; len(rows) > 1; 1 < n < 5; n in [1, 3]
'x' not in url; not nothing; url and n; nothing or 'x'; 'a' if n > 2 else 'b'
'a' if n > 5; [n, url]; (n, 1); {'a': n}; url ~ n ~ nothing; url[0:4]; rows[-1].b
words[n]; url.upper(); order.keys() | list; order.items() | list; order.get('id')
url.split(':'); rows | map(attribute='a'); rows | length
rows | selectattr('a', 'equalto', 2) | first; rows | selectattr('tags') | list
rows | rejectattr('a', 'gt', 1) | map(attribute='b') | list
sum(rows | map(attribute='a')); missing | default('x'); order.gone | default(7)
order.gone.more | default(7); nothing | default(1, true); words | sort
words | sort(reverse=true, case_sensitive=true)
rows | sort(attribute='b') | map(attribute='a'); rows | sort(attribute='b,a') | list
words | unique | list; words | min; words | max; rows | max(attribute='a')
words | join(', '); rows | join('-', attribute='a'); number | int + 1; 'x' | int
'x' | int(5); '0x1f' | int(0, 16); number | float; n | string; ' x ' | trim; url | upper
'ana b' | title; 'abc' | capitalize; 2.567 | round(1); 2.5 | round; 2.1 | round(0, 'ceil')
'a-b' | replace('-', '+'); words | reverse | list; 'abc' | reverse; words | last
empty | first | default('none'); empty | first; empty | max
words | select('in', ['a', 'b']); words | reject('equalto', 'a') | list
words | map('upper') | list; rows | sum(attribute='a'); -5 | abs; order | items | list
n is odd; n is divisibleby 3; n is number; url is string; order is mapping
rows is sequence; nothing is none; missing is defined; order.gone is undefined
order.id is defined; 3 is eq 3; 'a' is lower; only(order.items); pick(rows, b='x').a
nth(rows, 1).a; nth(rows, 5); pick(rows, b='z'); only(rows); str(n) + 'x'; int(number)
float('1.5'); int('x'); round(2.567, 1); sorted(words); min(n, 5); zip(words, words)
enumerate(words); any(empty); all(rows); abs(-n); max(rows | map(attribute='a')); 1 / 0
n.x; nothing.x; ulr; order.itms; rows[7]; url.nothing; order.keys; url.upper; [1, 2] + [3]
'%d' % 3; not (n == 3 and url); n - -1; (rows | selectattr('a', 'gt', 5) | list) or 'no'
rows | selectattr('a', 'gt', 5); words | first ~ words | last; n is integer
true is integer; n is float; true is boolean
""".replace("\n", ";").split(";")
TEXTS = [
    "order {{ order.id }}",
    "{{ n }} of {{ rows }}",
    "{% if n > 2 %}many{% endif %}!",
    "{{ url }}{{ n }}",
    "<{{ nothing }}> {{ order }}",
    "{% if n > 5 %}a{% elif n > 2 %}b{{ n }}{% else %}c{% endif %} x",
    "'{{ url }}' \"{{ n }}\" \\ { }} {",
    '{{ "{{ quoted }}" }}',
    "x {{ missing }}",
    "{{ 1.5 }} {{ true }} {{ [1e-5] }}",
    "{{ url }} {{ rows | map(attribute='a') | list }}",
    "{# gone #}a {{ n }}",
    "{{ n }}\t{{ '\"' }} é {{ words | join('\\n') }}\n",
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


@given(st.recursive(values, st.lists))
@settings(deadline=None)
def test_a_value_stands_in_a_text_as_the_runner_writes_it(value: Any) -> None:
    assert "<" + as_text(value) + ">" == compile_value("<{{ x }}>", "")({"x": value})


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("{{ rows | groupby('a') }}", "the filter 'groupby'"),
        ("{% for r in rows %}x{% endfor %}", "{% for %}"),
        ("{{ rows | tojson }}", "tojson"),
        ("x {{ rows | map(attribute='a') }}", "one by one"),
        ("{{ len }}", "is a function"),
        ("{{ url.encode() }}", "the method 'encode'"),
        ("{{ n is callable }}", "the test 'callable'"),
        ("{{ len(*rows) }}", "a call with *"),
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
        ("import beside\ndef f():\n    pass", "imports beside"),
        ("def g():\n    pass", "no function 'f'"),
        ("def f(:", "no Python"),
    ],
)
def test_a_udf_that_could_not_live_in_the_script_is_refused(
    routine: Any, udf: str, says: str
) -> None:
    folder = routine("  - {id: a, type: udf.call, function: f}", udf=udf)
    (folder / "beside.py").write_text("")
    with pytest.raises(ExportError, match=says):
        export_python(Package(folder))


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
    (script.parent / "in.json").write_text('{"url": "u"}')
    (script.parent / "answers.json").write_text('{"ask": {"ok": true}}')
    # -S leaves out what is installed, em among it.
    args = [sys.executable, "-I", "-S", "script.py", "--input", "in.json", "--tools", "tools.py"]

    def run(*more: str) -> Any:
        return subprocess.run(
            [*args, *more], cwd=script.parent, capture_output=True, text=True, stdin=-3, check=False
        )

    done = run("--answers", "answers.json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {"count": 2, "sent": ["Lisbon", "Porto"], "first": "LISBON"}
    waits = run()
    assert waits.returncode == 1
    assert waits.stderr == "step ask waits for an answer: Send 2?\n"
    ruff = [sys.executable, "-m", "ruff"]
    for check in (["check", "--isolated"], ["format", "--isolated", "--check"]):
        said = subprocess.run(
            [*ruff, *check, "--line-length", "100", str(script)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert said.returncode == 0, said.stdout


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
