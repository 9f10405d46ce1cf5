"""What a behaviour goes through: chosen, trusted, retired, too old, one too many, forgotten."""

import functools
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from em import Check, Engine, Memory
from em.behaviour import cache
from em.errors import UsageError
from em.log.event import EventQuery
from em.values.times import now

equal = lambda now, then: now == then  # noqa: E731 - the comparison of most checks here


class World:
    def __init__(self) -> None:
        self.log: list[Any] = []
        self.state: Any = 0
        self.looks = 0

    def look(self) -> Any:
        self.looks += 1
        return self.state


@pytest.fixture
def world() -> World:
    return World()


def make(world: World, db: Any = None, code: int = 1, **options: Any) -> Engine:
    """One call behind a check; `code` stands for a version of the program."""
    engine = Engine(db, name="e", **options)

    def one(n: int) -> None:
        world.log.append(n)

    def two(n: int) -> None:
        world.log.append(n)
        world.log.append("two")

    function = one if code == 1 else two
    tool = engine.function(pre_check=Check(world.look, equal), name="tool")(function)
    return engine.set_agent(lambda n: tool(n) or None)


def test_changed_tool_code_invalidates_and_the_reason_says_so(world: World, tmp_path: Path) -> None:
    db = tmp_path / "em.db"
    with make(world, db) as engine:
        engine(1)
    with make(world, db, code=2) as engine:
        result = engine(1)
        assert not result
        assert result.reason == "the code of tool 'tool' or of its checks has changed"
        assert engine(1)
    with make(world, db) as engine:
        assert engine(1), "the code of before finds what it recorded"


def test_fingerprints_see_code_defaults_and_checks_and_nothing_else() -> None:
    from em.behaviour.tool import fingerprint

    namespace: dict[str, Any] = {}

    def made(source: str) -> Any:
        exec(source, namespace)
        return namespace["f"]

    base = fingerprint(made("def f(a, b=1): return a + b"))
    assert fingerprint(made("\n\n# moved\ndef f(a, b=1):\n    return a + b")) == base
    for changed in (
        "def f(a, b=2): return a + b",
        "def f(a, b=1): return a - b",
        "def f(a, b=1): return a + b.c",
        "def f(x, b=1): return x + b",
        "def f(a, b=1): return [c for c in a if c > 1]",
    ):
        assert fingerprint(made(changed)) != base
    one = made("def f(a):\n    'says this'\n    return a in {1, 2, 3}")
    other = made("def f(a):\n    'says that'\n    return a in {3, 2, 1}")
    assert fingerprint(one) == fingerprint(other)
    check = Check(lambda: 1, equal)
    assert fingerprint(one, check) != fingerprint(one)
    assert fingerprint(one, check) != fingerprint(one, Check(lambda: 2, equal))
    assert fingerprint(one, check) != fingerprint(one, Check(lambda: 1, equal, threshold=0.5))
    assert fingerprint(functools.partial(one, 1)) != fingerprint(functools.partial(one, 2))
    assert fingerprint(len) != fingerprint(max)

    class Callback:
        def __call__(self) -> int:
            return 1

    assert fingerprint(Callback()) == fingerprint(Callback())


def test_several_behaviours_of_one_task_live_side_by_side(world: World) -> None:
    engine = make(world)
    for state in range(5):
        world.state = state
        assert not engine(1)
    for state in (3, 0, 4, 1, 2):
        world.state = state
        assert engine(1), "returning to an earlier state still hits"
    world.state = 9
    assert engine(1).reason == (
        "the pre-check of step 1 (tool) did not pass: now 9, recorded 4 (and 4 more did not fit)"
    )


def test_the_way_is_chosen_step_by_step_and_what_is_shared_is_done_once(world: World) -> None:
    engine = Engine()

    @engine.function(pre_check=Check(world.look, equal))
    def begin() -> None:
        world.log.append("begin")

    @engine.function(pre_check=Check(lambda: world.state, equal))
    def left() -> str:
        world.log.append("left")
        return "went left"

    @engine.function(pre_check=Check(lambda: world.state, equal))
    def right() -> str:
        world.log.append("right")
        return "went right"

    turns: Iterator[str] = iter(["left", "right"])

    def agent(progress: Any) -> str:
        turn = next(turns)
        if not progress:
            begin()
        world.state = turn
        return left() if turn == "left" else right()

    engine.set_agent(agent)
    world.state = "start"
    engine()
    world.state = "start"
    # While `begin` is done, the world turns right this time.
    tool = engine.tools["begin"]
    original = tool.function
    tool.function = lambda: (original(), setattr(world, "state", "right"))[0]
    assert engine().how == "handed_over"
    for turn in ("left", "right", "left"):
        world.state, world.looks = "start", 0
        world.log.clear()
        tool.function = lambda turn=turn: (original(), setattr(world, "state", turn))[0]
        result = engine()
        assert result.value == f"went {turn}"
        assert world.log == ["begin", turn]
        assert world.looks == 1, "one look serves every behaviour that shares the step"


def test_of_several_possible_ways_the_one_is_taken_that_saw_the_same_results(
    world: World,
) -> None:
    engine = Engine()
    look = engine.function(name="look", effect="read")(lambda: {"stock": world.state})
    buy = engine.function(name="buy")(lambda: world.log.append("buy"))
    wait = engine.function(name="wait")(lambda: world.log.append("wait"))
    expired = engine.function(name="fail")(lambda: 1 / world.state)

    def agent(progress: Any) -> str:
        if not progress:
            look()
        _ = buy() if world.state > 5 else wait()
        return "bought" if world.state > 5 else "waiting"

    engine.set_agent(agent)
    world.state = 9
    engine()
    engine.tools["buy"].function = expired
    world.state = 0
    assert engine().value == "waiting", "buying failed, so the agent waited"
    engine.tools["buy"].function = lambda: world.log.append("buy")
    for state, value in ((9, "bought"), (0, "waiting"), (9, "bought")):
        world.state = state
        result = engine()
        assert result.hit
        assert result.value == value


def test_a_behaviour_whose_replays_fail_is_retired(world: World) -> None:
    engine = Engine(retire_after=2)
    ok = engine.function(name="ok")(lambda: None)

    def fragile() -> int:
        if world.state == "broken":
            raise ConnectionError("gone")
        return 7

    weak = engine.function(name="weak", effect="read")(fragile)

    def agent(progress: Any) -> str:
        if not progress:
            ok()
            weak()
        return "done"

    engine.set_agent(agent)
    engine()
    world.state = "broken"
    first = engine()
    assert (first.how, first.value) == ("handed_over", "done")
    world.state = 0
    assert engine(), "one failure is forgiven by a hit"
    world.state = "broken"
    assert engine().how == "handed_over"
    assert engine().how == "handed_over"
    assert engine(), "what the agent made of it stands when the other is out of use"
    stats = engine.stats()
    assert stats.retired >= 1
    assert (stats.hits, stats.hand_overs, stats.failures) == (2, 3, 3)
    counts = next(iter(stats.behaviours.values()))
    assert (counts.hits, counts.hand_overs, counts.failures) == (1, 3, 3)


def test_a_replay_that_takes_too_long_stops_and_hands_over(world: World) -> None:
    engine = Engine(budget=2, grace=0.0)

    @engine.function()
    def work(n: int) -> None:
        world.log.append(n)
        time.sleep(world.state)

    def agent(progress: Any) -> None:
        for n in range(len(progress.done), 3):
            work(n)

    engine.set_agent(agent)
    world.state = 0.02
    engine()
    world.state = 0.3
    result = engine()
    assert result.how == "handed_over"
    assert "s allowed" in result.reason
    assert world.log == [0, 1, 2, 0, 1, 2]
    assert engine.stats().failures == 1


def test_what_is_older_than_its_ttl_does_not_answer(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make(world, ttl=60)
    engine(1)
    assert engine(1)
    monkeypatch.setattr(cache, "now", lambda: now() + timedelta(seconds=61))
    result = engine(1)
    assert not result
    assert result.reason == "the behaviour is older than 60 s"
    monkeypatch.undo()
    assert engine(1), "it was recorded again"
    assert engine.stats().retired == 1, "in the place of the one that said the same"


def test_a_task_keeps_so_many_and_lets_go_of_the_least_used(world: World) -> None:
    engine = make(world, max_per_task=2)
    for state in (1, 2):
        world.state = state
        engine(1)
    world.state = 1
    assert engine(1)
    world.state = 3
    engine(1)
    hits = {}
    for state in (1, 3, 2):
        world.state = state
        hits[state] = engine(1).hit
    assert hits == {1: True, 3: True, 2: False}


def test_an_engine_keeps_so_many_and_lets_go_of_the_oldest(world: World, tmp_path: Path) -> None:
    with make(world, tmp_path / "em.db", max_behaviours=3) as engine:
        for n in range(5):
            engine(n)
        assert [engine(n).hit for n in (2, 3, 4)] == [True] * 3
        assert not engine(0)
        live = [a for a in engine.cache.store.artefacts("behaviour") if a.retired_at is None]
        assert len(live) == 3


def test_heuristics_come_through_the_seam(world: World) -> None:
    asked = []

    def briefing(task: Any) -> list[str]:
        asked.append(dict(task))
        return ["close the window first"]

    engine = Engine(briefing=briefing)
    work = engine.function()(lambda: None)
    told = []

    def agent(task: str) -> None:
        told.append(engine.progress())
        work()

    engine.set_agent(agent)("clean")
    assert asked == [{"task": "clean"}]
    assert told[0].heuristics == ["close the window first"]
    assert "- close the window first" in str(told[0])
    assert not told[0], "nothing was done yet"
    engine("clean")
    assert len(asked) == 1, "a hit asks nobody"


def test_secrets_are_not_kept_and_a_behaviour_with_a_hole_is_not_replayed(tmp_path: Path) -> None:
    secret = "sk-demo-4f1c9a7b2e8d3f60"
    given = []
    with Engine(tmp_path / "em.db", name="e") as engine:

        @engine.function()
        def call(api_key: str) -> None:
            given.append(api_key)

        engine.set_agent(lambda: call(secret))
        result = engine()
        assert not result.stored
        assert "a secret" in str(result.problem)
        assert "api_key" in str(result.problem)
        assert not engine()

        engine.set_agent(call)
        assert engine(secret, params=["api_key"]).stored
        other = "sk-demo-0000aaaa1111bbbb"
        assert engine(other, params=["api_key"]).hit
        assert given[-1] == other
    assert secret.encode() not in (tmp_path / "em.db").read_bytes()


def test_forgetting_a_run_takes_its_behaviour_and_replays_along(
    world: World, tmp_path: Path
) -> None:
    with Memory(tmp_path / "em.db") as memory:
        engine = make(world, memory.store)
        engine(4711)
        assert engine(4711)
        call = next(iter(memory.log.read(kinds=["tool_call"])))
        assert call.body is not None
        assert call.body["args"] == {"n": 4711}
        memory.forget(call)
        assert memory.log.verify().ok
        result = engine(4711)
        assert not result, "what is loaded is let go of too"
        query = EventQuery(kinds=["behaviour_replayed", "behaviour_recorded"])
        bodies = [event.body for event in memory.store.read(query)]
        assert bodies[:2] == [None, None]


def closing(store: Any, note: list[str]) -> tuple[Engine, list[str]]:
    """An agent that reads a note and closes a case; the tasks are about whom they name."""
    engine = Engine(store, name="closing", enough=1, subject=lambda given: given["who"])
    read = engine.function(name="read_note")(lambda: {"note": note[0]})
    closed: list[str] = []

    @engine.function()
    def close(who: str) -> None:
        closed.append(who)

    def agent(who: str) -> None:
        read()
        close(who)

    return engine.set_agent(agent), closed


def test_what_was_learnt_from_a_run_is_forgotten_with_it(tmp_path: Path) -> None:
    note = ["what only Ana may know"]
    with Memory(tmp_path / "em.db") as memory:
        engine, _ = closing(memory.store, note)
        assert engine("ana.lima", params=["who"]).stored
        note[0] = "what only Bo may know"
        assert engine("bo.berg", params=["who"]).stored
        (way,) = engine.cache.lessons(next(iter(engine.cache._tasks)))
        assert len(way.stored) == 2
        memory.forget(list(memory.log.read(subject="ana.lima")))
        assert memory.log.verify().ok
        left = [one.body for one in memory.store.artefacts("behaviour")]
        assert b"only Ana" not in msgspec.json.encode(left)
        assert not engine("cy.cole", params=["who"])


def test_a_secret_that_was_only_read_is_not_stored_and_keeps_nothing_from_being_replayed(
    tmp_path: Path,
) -> None:
    note = [f"sk-ant-api03-{'abcdEFGH1234' * 6}"]
    with Memory(tmp_path / "em.db") as memory:
        engine, closed = closing(memory.store, note)
        assert engine("ana.lima", params=["who"]).stored
        assert engine("bo.berg", params=["who"]).hit
        note[0] = f"sk-ant-api03-{'wxyzEFGH1234' * 6}"
        assert engine("cy.cole", params=["who"]).hit, "what is not stored is not compared"
    assert closed == ["ana.lima", "bo.berg", "cy.cole"]
    assert b"EFGH1234" not in (tmp_path / "em.db").read_bytes()


def test_every_use_is_in_the_log(world: World, tmp_path: Path) -> None:
    with Memory(tmp_path / "em.db") as memory:
        engine = make(world, memory.store)
        engine(1)
        engine(1)
        kinds = [event.kind for event in memory.log.read()]
        assert kinds == [
            "trace_started",
            "tool_call",
            "trace_ended",
            "behaviour_missed",
            "behaviour_recorded",
            "behaviour_replayed",
        ]


def test_methods_are_replayed_on_the_objects_of_the_context(world: World) -> None:
    engine = Engine()

    class Base:
        @engine.method()
        def hello(self, name: str) -> None:
            world.log.append((type(self).__name__, name))

    class Client(Base): ...

    class Other:
        @engine.method(pre_check=Check(lambda self: self.size, equal))
        def grow(self, by: int = 1) -> int:
            self.size += by
            return self.size

    client, other = Client(), Other()
    other.size = 0

    def agent() -> int:
        client.hello("world")
        return other.grow()

    engine.set_agent(agent)
    with pytest.raises(UsageError, match=r"set_context with an object of class Base"):
        engine.finalize()
    engine.set_context(client, other).finalize()
    engine()
    other.size = 0
    assert engine().value == 1
    assert world.log == [("Client", "world")] * 2
    fresh = Client()
    engine.set_context(fresh)
    other.size = 0
    assert engine()

    lonely = Engine()

    class Lone:
        @lonely.method()
        def go(self) -> None: ...

    lone = Lone()
    lonely.set_agent(lone.go)
    assert lonely().stored
    assert lonely().reason == "set_context was given no object of class Lone"

    pair = Lone(), Lone()
    lonely.set_agent(lambda: [one.go() for one in pair] and None)
    assert "two objects of class Lone" in str(lonely().problem)


def test_calls_at_the_same_time_have_objects_of_their_own() -> None:
    engine = Engine()

    class Page:
        def __init__(self) -> None:
            self.log: list[str] = []

        @engine.method()
        def click(self, where: str) -> None:
            time.sleep(0.002)
            self.log.append(where)

    first = Page()
    engine.set_agent(lambda: [first.click(where) for where in "abc"] and None)
    assert engine().stored
    assert "no object of class Page" in engine().reason

    def one(page: Page) -> bool:
        with engine.context(page):
            return bool(engine().hit)

    pages = [Page() for _ in range(8)]
    with ThreadPoolExecutor(max_workers=4) as pool:
        assert all(pool.map(one, pages))
    assert [page.log for page in pages] == [["a", "b", "c"]] * 8
    assert "no object of class Page" in engine().reason


def test_an_error_of_the_agent_keeps_its_cause() -> None:
    engine = Engine()
    cause = KeyError("cause")

    def agent() -> None:
        try:
            open("nowhere/to/be/found")  # noqa: SIM115 - it is not
        except OSError:
            raise ValueError("second") from cause

    engine.set_agent(agent)
    with pytest.raises(ValueError, match="second") as caught:
        engine()
    assert caught.value.__cause__ is cause
    assert isinstance(caught.value.__context__, OSError)


def test_a_state_that_was_not_seen_for_long_is_still_known(world: World) -> None:
    engine = Engine(retire_after=2)
    first = engine.function(name="first")(lambda: None)
    tool = engine.function(pre_check=Check(world.look, equal), name="tool")(lambda: None)

    def agent(progress: Any) -> None:
        if not progress:
            first()
        tool()

    engine.set_agent(agent)
    for state in range(6):
        world.state = state
        assert not engine()
    world.state = 0
    assert engine(), "that others did not fit is no fault of this one"


def test_misuse_is_told_early() -> None:
    engine = Engine()
    with pytest.raises(UsageError, match="the engine has no agent"):
        engine("task")
    with pytest.raises(UsageError, match="the engine has no agent"):
        engine.finalize()
    with pytest.raises(UsageError, match="expected a callable"):
        engine.set_agent("agent")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="a generator can't be a tool"):

        @engine.function()
        def items() -> Any:
            yield 1

    with pytest.raises(UsageError, match="its capture takes 'color'"):

        @engine.function(pre_check=Check(lambda color: 1, equal))
        def paint() -> None: ...

    engine.set_agent(lambda name: None)
    with pytest.raises(UsageError, match="the arguments don't fit the agent"):
        engine("a", "b")
    with pytest.raises(UsageError, match="'nome' is not an argument of the agent"):
        engine("a", params=["nome"])
    with pytest.raises(UsageError, match="'tags'"):
        engine.set_agent(lambda tags: None)


def test_one_name_is_one_tool() -> None:
    engine = Engine()

    def make(n: int) -> None:
        engine.function(name=None)(lambda: n)

    make(1)
    with pytest.raises(UsageError, match="two tools have the name '<lambda>'"):
        make(2)
    source = "def step(): return {}"
    for version in (1, 2):  # as a cell of a notebook that is run again
        namespace: dict[str, Any] = {"__name__": "cell"}
        exec(source.format(version), namespace)
        engine.function()(namespace["step"])
    assert engine.tools["step"].function() == 2
    with pytest.raises(UsageError, match="does not declare its parameters"):
        engine.function()(max)


def test_any_kind_of_number_is_a_score() -> None:
    import decimal

    check = Check(lambda: 0, equal, threshold=0.5)
    for verdict, passes in (
        (True, True),
        (False, False),
        (0.5, True),
        (0.4, False),
        (decimal.Decimal("0.4"), False),
        (decimal.Decimal("0.6"), True),
        (1, True),
        (0, False),
        (None, False),
        (float("nan"), False),
    ):
        assert check.passes(verdict) is passes


def test_a_task_that_cant_be_found_again_is_the_agents_own() -> None:
    engine = Engine()
    work = engine.function(name="work")(lambda: 7)

    def agent(client: object, params: Any, progress: Any) -> int:
        assert not progress
        return work()

    engine.set_agent(agent)
    result = engine(object(), params={"a": 1})
    assert result.value == 7
    assert "the agent's argument client" in result.reason
    assert engine.stats().recorded == 0

    def with_default(client: object = agent) -> int:
        return work()

    engine.set_agent(with_default)
    assert engine().stored, "a default that is no value is no part of the task"
    assert engine()


def test_a_capture_of_a_method_may_call_its_object_as_it_likes(world: World) -> None:
    engine = Engine()

    class Page:
        url = "/a"

        @engine.method(pre_check=Check(lambda page, by: (page.url, by), equal))
        def scroll(self, by: int) -> None: ...

        @engine.method(pre_check=Check(lambda by: by, equal))
        def jump(self, by: int) -> None: ...

    page = Page()

    def agent(progress: Any = None) -> None:
        page.scroll(3)
        page.jump(3)

    engine.set_agent(agent).set_context(page)
    assert engine().stored
    assert engine()
    page.url = "/b"
    assert 'now ["/b",3], recorded ["/a",3]' in engine().reason


def test_a_failed_call_that_the_agent_got_over_is_left_out(world: World) -> None:
    engine = Engine()

    @engine.function()
    def find(name: str) -> int:
        if name == "wrong":
            raise KeyError(name)
        return 4711

    def agent() -> int:
        try:
            return find("wrong")
        except KeyError:
            return find("right")

    engine.set_agent(agent)
    assert [step.error for step in engine().steps] == ["KeyError: 'wrong'", None]
    assert [step.args for step in engine().steps] == [{"name": "right"}]


def test_a_call_whose_effect_is_unknown_is_not_recorded(world: World) -> None:
    engine = Engine()

    @engine.function()
    def send(n: int) -> None:
        if n == 1:
            raise TimeoutError("connection timed out")

    def agent() -> None:
        try:
            send(1)
        except TimeoutError:
            send(2)

    result = engine.set_agent(agent)()
    assert "its effect is unknown" in str(result.problem)


def test_an_interrupt_goes_through_and_is_told(world: World) -> None:
    engine = Engine()
    first = engine.function(name="first")(lambda: None)

    def stop() -> None:
        if world.state == "stop":
            raise KeyboardInterrupt

    second = engine.function(name="second")(stop)

    def agent() -> None:
        first()
        second()

    engine.set_agent(agent)
    engine()
    world.state = "stop"
    with pytest.raises(KeyboardInterrupt):
        engine()
    (event,) = engine.cache.store.read(EventQuery(kinds=["behaviour_replayed"]))
    assert event.body is not None
    assert event.body["outcome"] == "interrupted"
