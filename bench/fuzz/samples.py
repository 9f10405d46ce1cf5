"""Samples: good inputs of every kind, small, from the tests, the examples and the shared data."""

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from bench.importing import TRANSCRIPTS
from bench.made_sessions import sessions

ROOT = Path(__file__).parent.parent.parent
MOST_ITEMS, MOST_TEXT, MOST_LINES = 5, 200, 14
"""A sample is cut to this: damage to a small input is found as well, and faster."""

Tools = Mapping[str, Any]


class Transcript(NamedTuple):
    """The values of a transcript, one for each line; or one document."""

    name: str
    values: list[Any]
    is_document: bool


class Package(NamedTuple):
    """The files of a routine, an input for it, and a function that makes its tools anew."""

    name: str
    files: dict[str, str]
    input: dict[str, Any]
    tools: Any


@cache
def transcripts() -> list[Transcript]:
    """Return samples of every transcript format."""
    found = [_transcript(name, data) for name, data in _texts()]
    return [one for one in found if one.values]


def _texts() -> Iterator[tuple[str, bytes]]:
    sys.path.insert(0, str(ROOT / "tests" / "traces"))
    from sessions import lines, order_session, otlp
    from test_formats import SAMPLES

    yield from SAMPLES
    yield "claude-code", lines(*order_session("s1", "W1"))
    yield "otel", json.dumps(otlp("0af7651916cd43dd8448eb211c80319c", "W1")).encode()
    yield from ((kind, text.encode()) for kind, text in sessions())
    for path in sorted(TRANSCRIPTS.glob("*/*")):
        if path.is_file():
            yield path.parent.name, path.read_bytes()


def _transcript(name: str, data: bytes) -> Transcript:
    try:
        return Transcript(name, [small(json.loads(data))], is_document=True)
    except ValueError:
        rows = [line for line in data.splitlines() if line.strip()]
        kept = [*rows[: MOST_LINES // 2], *rows[MOST_LINES // 2 :][-MOST_LINES // 2 :]]
        return Transcript(name, [small(json.loads(row)) for row in kept], is_document=False)


def small(value: Any) -> Any:
    """Return a value with its long lists and texts cut."""
    if isinstance(value, dict):
        return {key: small(item) for key, item in value.items()}
    if isinstance(value, list):
        return [small(item) for item in value[:MOST_ITEMS]]
    return value[:MOST_TEXT] if isinstance(value, str) and "{" not in value[:2] else value


@cache
def packages() -> list[Package]:
    """Return routines of every form: written by hand, of one trace, of several, runbooks."""
    return [*_examples(), *_learnt()]


def _examples() -> Iterator[Package]:
    folder = ROOT / "examples" / "csv_report" / "routine"
    files = {path.name: path.read_text() for path in sorted(folder.iterdir()) if path.is_file()}
    files.pop("test_udf.py", None)
    tools = {"read_file": lambda **_: "a,b\n1,2\n", "write_file": lambda **_: {"ok": True}}
    yield Package("csv_report", files, json.loads(files["input.json"]), lambda: tools)
    from tests.runner.good_routine import GOOD

    yield Package("steps", {"routine.yaml": GOOD}, {"url": "x"}, lambda: {"fetch": lambda **_: [1]})
    from tests.serve.sample import refund

    given = {"order": "A-17", "amount": 40, "reason": "late"}
    yield Package("refund", {"routine.yaml": refund()}, given, dict)


def _learnt() -> Iterator[Package]:
    from tests.compiler.boiler_room import Boiler, recorded
    from tests.corner_shop import Shop, cancelled, returned

    shop = Shop()
    orders = [cancelled(shop, 0, "no longer needed"), cancelled(shop, 1, "ordered by mistake")]
    items = [returned(shop, 1, ["P-4401"]), returned(shop, 2, ["P-4402", "P-4403"])]
    homes = [("low",), ("stuck",), ("summer",)] * 3
    repairs = [recorded(Boiler(*faults, home=n)) for n, faults in enumerate(homes, 10)]
    request = {"request": orders[0].mission.goal}
    yield _compiled("template", orders, request, lambda: Shop().tools())
    yield _compiled("loop", items, {}, lambda: Shop().tools())
    yield _compiled("one trace", orders[:1], {}, lambda: Shop().tools())
    cold = {"request": Boiler("low").request}
    yield _compiled("runbook", repairs, cold, lambda: Boiler("low", "summer").tools())


def _compiled(name: str, traces: list[Any], given: dict[str, Any], tools: Any) -> Package:
    from em import Memory
    from em.runner.package import find_routine, texts_of

    with tempfile.TemporaryDirectory() as folder, Memory(Path(folder, "em.db")) as memory:
        routine = memory.compile([memory.add_trace(one) for one in traces], name="made", force=True)
        files = dict(texts_of(find_routine(memory.store, routine.name)))
    example = json.loads(files.get("input.json", "{}"))
    return Package(name, files, {**example, **given}, tools)


SETTINGS = """\
db: em.db
busy_timeout: 5
synchronous: full
redact: {allow: ["a.*b"], patterns: {badge: "B-[0-9]{6}"}}
llm: {provider: mine, model: m, max_tokens: 100}
providers:
  mine: {protocol: openai, base_url: "http://localhost:1", model: m, key_env: KEY,
    price: {input: 1, output: 2}}
allow:
  commands: [ls, git]
  hosts: [api.example.com]
  env: [HOME]
commands:
  tool: {effect: read, options: {-n: value}}
embed: {use: none}
api:
  host: 127.0.0.1
  port: 8321
  tokens: [{env: BO_TOKEN, subjects: [bo]}]
  max_request_bytes: 1000000
  allowed_hosts: [example.com]
state: {checkpoint_every: 10m, rules: rules.py}
workflow_memory: {keep_days: 3, max_mb: 10}
work: {lease: 5, limits: {model: 2}}
record: true
recordings: {keep_days: 30}
"""

WORKFLOW = """\
workflows:
  report:
    description: Research, question, report.
    params:
      - topic
      - depth: detailed
      - sources: [library, newspaper]
      - n: {type: integer, default: 3}
    steps:
      - name: research
        for_each: params.sources
        as: source
        inputs: {prompt: "What does the {{ source }} say about {{ params.topic }}?"}
      - name: questions
        memory: {needs: [user_prompt, tool_output(research), "recall(params.topic, 3)"]}
        when: "params.n > 2"
        inputs:
          prompt: |
            Topic: {{ memory.user_prompt }}
            {% for found in memory.research_output %}- {{ found }}
            {% endfor %}
      - name: count
        tool: count_words
        effect: read
        memory: {needs: [research]}
        retry: {attempts: 2}
        inputs: {texts: "{{ memory.research }}"}
      - name: send
        tool: send
        effect: write
        idempotency_key: "{{ run_id }}/send"
        memory: {needs: [count, "heuristics(params.topic)"]}
        inputs: {text: "{{ memory.count }}", to: [a, {b: "{{ params.depth }}"}]}
      - name: report
        gate: "Write the report on {{ memory.topic }} from {{ memory.count }} words?"
        memory: {needs: [parameters, questions, count]}
        inputs: {prompt: "Answer for {{ memory.topic }}: {{ memory.questions }}"}
"""

EXPRESSIONS = (
    "order.items[0].price * 2 + 1",
    "len(rows) > 0 and rows[0].name == 'a'",
    "rows|map(attribute='n')|sum",
    "{{ text|upper|replace('A', 'b') }} and {{ n }}",
    "pick(rows, where={'name': 'a'}).n",
    "select(rows, where={'deep.x': 1})|length",
    "'%s-%d'|format(text, n)",
    "text[1:3] ~ n|string",
    "{% for row in rows %}{{ loop.index }}{{ row.name }}{% else %}none{% endfor %}",
    "{% set x = n + 1 %}{{ x ** 2 if x else x // 3 }}",
    "date(day) + days(3)",
    "n in [1, 2, 3] or not none",
    "rows|sort(attribute='n', reverse=true)|list|first",
    "{{ dict(a=1, b=rows)|tojson(indent=2) }}",
    "text is defined and text is string and n is divisibleby 3",
    "rows|groupby('name')|list",
    "{% macro m(a, b=2) %}{{ a }}{% endmacro %}{{ m(1) }}",
    "{{ order['items'][-1]['price']|round(2) }}",
    "among(rows, ['a'])",
    "text|int(0, 16) % 7",
    "rows|batch(2)|list",
    "{{ text|wordwrap(3)|indent }}",
    "range(3)|list",
    "text|center(20)|trim|list|unique|join(',')",
    "{{ n|float|abs|round(1, 'floor') }}",
)
