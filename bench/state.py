"""State: the analytical questions, and compiling, loading and asking beside the plain way."""

import datetime
import json
import os
import re
import resource
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from bench.analytical import TYPES, code_for
from bench.figure import Figure, in_turns, seconds, time_figure
from em import Memory
from em.llm import ScriptedClient

DATA = Path(os.environ.get("EM_BENCH_DATA", "../shared/data")) / "analytical" / "cases_dev60.json"
RECORDS = 100_000
NEW = 100
SUBJECTS = int(os.environ.get("EM_BENCH_SUBJECTS", "10000"))
EACH = 100


def cases() -> list[dict[str, Any]]:
    if not DATA.exists():
        print(f"no data at {DATA}: set EM_BENCH_DATA; this bench is passed over")
        return []
    found: list[dict[str, Any]] = json.loads(DATA.read_bytes())["cases"]
    return found


def is_right(kind: str, gold: Any, value: Any) -> bool:
    if kind == "int":
        return type(value) is int and value == gold
    if kind == "float":
        return abs(value - gold) <= max(0.01 * abs(gold), 0.01)
    if kind == "set":
        return set(value) == set(gold)
    one, other = str(gold).lower(), str(value).lower()
    return one in other or other in one


def answered(memory: Memory, case: dict[str, Any]) -> bool:
    answer = memory.ask("me", code=code_for(case["question_id"]))
    right = is_right(case["answer_kind"], case["gold"], answer.value)
    if not right:
        print(f"wrong: {case['case_id']}: {answer.value!r}, not {case['gold']!r}")
    return right and answer.route == "code" and len(answer.event_ids) == case["n"]


def as_records() -> Iterator[Figure]:
    """Every record observed as it is."""
    right, found = 0, cases()
    for case in found:
        with tempfile.TemporaryDirectory() as folder, Memory(f"{folder}/em.db") as memory:
            type_ = TYPES[case["type"]]
            memory.observe_many(
                {"subject": "me", "record": record, "type": type_} for record in case["records"]
            )
            state = memory.checkpoint("me")
            (collection,) = state.collections
            back = [state.as_record(record) for record in getattr(state, collection)]
            right += back == case["records"] and answered(memory, case)
    if found:
        yield score("analytical questions, records as they are", right, len(found))


def score(what: str, right: int, number: int) -> Figure:
    return Figure(what, right, "all", number, "right", right / number, 1.0, True)


def sentence(type_: str, record: dict[str, Any]) -> str:
    """A record in words."""
    parts = [f"the {name} {in_words(value)}" for name, value in record.items()]
    return f"About a {type_}: {', '.join(parts)}."


def in_words(value: Any) -> str:
    if isinstance(value, list):
        return f"were {' and '.join(value) or 'none'}"
    return f"was {'yes' if value is True else 'no' if value is False else value}"


_PART = re.compile(r"the (\w+) (was|were) (.*?)(?=, the \w+ (?:was|were) |\.$)")
_LINE = re.compile(r'^(e\d+) \S+ "[^"]*" \[[^]]*\]: (".*")$', re.MULTILINE)


def reading_model(request: Any) -> Any:
    """A scripted model that reads the sentences back, as far as they are in its prompt.

    To the second question it answers that all of it is stated.
    """
    if asked := re.findall(r"^(s\d+) ", request.prompt, re.MULTILINE):
        return {"stated": asked}
    records = []
    for label, text in _LINE.findall(request.prompt):
        said = json.loads(text)
        type_ = said.removeprefix("About a ").partition(":")[0]
        record = {name: meant(verb, words) for name, verb, words in _PART.findall(said)}
        found = {"op": "add", "type": type_, "record": record, "events": [label], "again": True}
        records.append({**found, "evidence": [said]})
    return {"facts": records}


def meant(verb: str, words: str) -> Any:
    if verb == "were":
        return [] if words == "none" else words.split(" and ")
    if words in ("yes", "no"):
        return words == "yes"
    for kind in (int, float):
        try:
            return kind(words)
        except ValueError:
            continue
    return words


def as_sentences() -> Iterator[Figure]:
    """Every record in words, at its own time, read back by a scripted model, chunk by chunk."""
    right, found = 0, cases()
    for case in found:
        with tempfile.TemporaryDirectory() as folder, Memory(f"{folder}/em.db") as memory:
            type_ = TYPES[case["type"]]
            memory.observe_many(
                {"subject": "me", "text": sentence(type_, record), "at": day_of(record)}
                for record in case["records"]
            )
            model = ScriptedClient(reading_model)
            state = memory.checkpoint("me", llm=model)
            (collection,) = state.collections
            back = [state.as_record(record) for record in getattr(state, collection)]
            middle = sorted(map(day_of, case["records"]))[case["n"] // 2]
            past = getattr(memory.state("me", as_of=middle), collection)
            by_then = sum(day_of(record) <= middle for record in case["records"])
            whole = back == case["records"] and len(past) == by_then
            right += whole and answered(memory, case)
    if found:
        yield score("the same, as sentences read back by a scripted model", right, len(found))


def day_of(record: dict[str, Any]) -> str:
    return str(next(value for name, value in record.items() if name.endswith("date")))


def rows(number: int) -> list[dict[str, Any]]:
    regions = ["Europe", "Asia", "Americas", "Africa"]
    first = datetime.date(2020, 1, 1)
    return [
        {
            "id": n,
            "date": (first + datetime.timedelta(days=n % 2000)).isoformat(),
            "destination": f"City {n % 97}",
            "country": f"Country {n % 31}",
            "region": regions[n % 4],
            "duration_days": n % 21 + 1,
            "purpose": ("business", "family", "conference")[n % 3],
            "cost_usd": (n * 7919 % 500_000) / 100,
            "transportation": ("car", "plane", "train")[n % 3],
        }
        for n in range(number)
    ]


def plain_insert(path: Path, records: list[dict[str, Any]]) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("CREATE TABLE rows(id INTEGER PRIMARY KEY, body TEXT)")
        connection.execute(
            "CREATE VIRTUAL TABLE words USING fts5(text, content='',"
            " tokenize='porter unicode61 remove_diacritics 2')"
        )
        connection.execute("BEGIN")
        bodies = [(n, json.dumps(record)) for n, record in enumerate(records)]
        connection.executemany("INSERT INTO rows VALUES (?, ?)", bodies)
        texts = [
            (n, " ".join(f"{name}: {value}" for name, value in record.items()))
            for n, record in enumerate(records)
        ]
        connection.executemany("INSERT INTO words(rowid, text) VALUES (?, ?)", texts)
        connection.execute("COMMIT")


def observed(memory: Memory, records: list[dict[str, Any]]) -> None:
    memory.observe_many({"subject": "me", "record": record, "type": "Trip"} for record in records)


def compiling() -> Iterator[Figure]:
    """Taking in and compiling many records, and then a few more."""
    records, fresh = rows(RECORDS), rows(NEW)
    whole: list[float] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def ours() -> float:
            shutil.rmtree(folder / "em", ignore_errors=True)
            with Memory(folder / "em" / "em.db") as memory:
                taken = seconds(lambda: observed(memory, records))
                whole.append(seconds(lambda: memory.subjects.checkpoint("me")))
            return taken + whole[-1]

        def theirs() -> float:
            for file in folder.glob("plain*"):
                file.unlink()
            return seconds(lambda: plain_insert(folder / "plain.db", records))

        yield time_figure(
            f"observe_many and checkpoint {RECORDS:,} records",
            "sqlite3 insert with FTS5",
            in_turns(ours, theirs, rounds=3),
            6.0,
        )
        with Memory(folder / "em" / "em.db") as memory:
            few = []
            for _ in range(5):
                observed(memory, fresh)
                few.append(seconds(lambda: memory.subjects.checkpoint("me")))
        full, some = sorted(whole)[len(whole) // 2], sorted(few)[2]
        yield time_figure(
            f"checkpoint after {NEW} more", "the full one", (some, full, some / full), 0.02
        )
        yield from loading(folder, records)


class Row(msgspec.Struct):
    id: int
    date: datetime.date
    destination: str
    country: str
    region: str
    duration_days: int
    purpose: str
    cost_usd: float
    transportation: str


def loading(folder: Path, records: list[dict[str, Any]]) -> Iterator[Figure]:
    """Loading a state and one aggregate over it."""
    lines = folder / "rows.jsonl"
    lines.write_bytes(b"\n".join(map(msgspec.json.encode, records)))

    def ours() -> float:
        with Memory(folder / "em" / "em.db") as memory:

            def work() -> float:
                trips = memory.state("me").trips
                return sum(trip.cost_usd for trip in trips if trip.date.year == 2024)

            return seconds(work)

    decoder = msgspec.json.Decoder(Row)

    def theirs() -> float:
        def work() -> float:
            read = decoder.decode_lines(lines.read_bytes())
            return sum(row.cost_usd for row in read if row.date.year == 2024)

        return seconds(work)

    yield time_figure(
        f"load a state of {RECORDS:,} records and one aggregate",
        "msgspec Structs from JSON lines",
        in_turns(ours, theirs, rounds=7),
        5.0,
    )


def observing() -> Iterator[Figure]:
    """Observing texts one by one, beside appending the same events to the log."""
    numbers = count()

    def text() -> str:
        return f"I had tea number {next(numbers)} with Lia, and we talked about the trip to Rome."

    with tempfile.TemporaryDirectory() as name, Memory(Path(name) / "em.db") as memory:

        def ours() -> float:
            return work_of(lambda: memory.observe("ana", text(), speaker="Ana"))

        def theirs() -> float:
            def append() -> None:
                body = {"text": text(), "speaker": "Ana"}
                memory.log.append(
                    stream="subject/ana", kind="observation", body=body, subject="ana"
                )

            return work_of(append)

        sides = in_turns(ours, theirs, rounds=25)
    yield time_figure("observe 100 texts", "log.append of the same (processor time)", sides, 1.1)


def work_of(call: Callable[[], object]) -> float:
    """The processor seconds of a hundred calls: the clock says more of the disk, and of others."""
    start = time.process_time()
    for _ in range(100):
        call()
    return time.process_time() - start


def megabytes() -> float:
    """What this process holds in memory now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1024 / 1024


def cpu_seconds() -> float:
    """The processor time of this process and of those it waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def many_subjects() -> Iterator[Figure]:
    """Many subjects: half of them by one process, half by one for each core."""
    cores = os.cpu_count() or 1
    half = SUBJECTS // 2
    records = rows(EACH)
    with tempfile.TemporaryDirectory() as name, Memory(Path(name) / "em.db") as memory:
        names = [f"subject {n}" for n in range(2 * half)]
        for start in range(0, len(names), 200):
            memory.observe_many(
                {"subject": who, "record": record, "type": "Trip"}
                for who in names[start : start + 200]
                for record in records
            )
        memory.checkpoint_many(names[:100], processes=1)
        little = megabytes()
        start = cpu_seconds()
        one = seconds(lambda: memory.checkpoint_many(names[100:half], processes=1))
        each, alone = one / (half - 100), (cpu_seconds() - start) / (half - 100)
        much = megabytes()
        start = cpu_seconds()
        all_ = seconds(lambda: memory.checkpoint_many(names[half:], processes=cores)) / half
        together = (cpu_seconds() - start) / half
    # On a machine that others use too, this says more than the clock.
    print(
        f"processor time of a subject: {alone * 1e3:.2f} ms by one process,"
        f" {together * 1e3:.2f} ms by {cores}; load {os.getloadavg()[0]:.1f}"
    )
    yield Figure(
        f"{SUBJECTS:,} subjects of {EACH} records, {cores} processes",
        1 / all_,
        "subjects by one process",
        1 / each,
        "/s",
        each / all_,
        0.75 * cores,
        True,
    )
    yield Figure(
        "memory of a process that compiled thousands of them",
        much,
        "after the first hundred",
        little,
        "MB",
        much / little,
        1.5,
        False,
    )
