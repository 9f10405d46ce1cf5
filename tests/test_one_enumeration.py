"""Things of one list are taken only if the words name them in one enumeration behind the verb."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from em import Memory, recorded_tool

TITLES = ("Dune", "Emma", "Faust")
Returned = Callable[[str], list[list[str]]]


@pytest.fixture
def returned(tmp_path: Any) -> Iterator[Returned]:
    """What a request returns, of a library that learnt it from four."""
    written: list[list[str]] = []

    @recorded_tool(effect="read")
    def get_bag(bag_id: str) -> dict[str, Any]:
        books = [{"title": t, "book_id": f"{bag_id[3]}{n}5512"} for n, t in enumerate(TITLES)]
        return {"bag_id": bag_id, "status": "lent", "books": books}

    @recorded_tool(effect="write")
    def return_books(bag_id: str, book_ids: list[str]) -> dict[str, Any]:
        written.append(book_ids)
        return {"bag_id": bag_id, "status": "returned"}

    traces = {
        "Return Dune of #B-108.": ("#B-108", [0]),
        "Return Emma and Faust of #B-308, please.": ("#B-308", [1, 2]),
        "I want to return Faust of #B-208.": ("#B-208", [2]),
        "Please return Dune and Emma of #B-608.": ("#B-608", [0, 1]),
    }
    memory = Memory(tmp_path / "memory.db")

    @memory.record(app="library")
    def agent(request: str) -> None:
        bag, chosen = traces[request]
        books = get_bag(bag_id=bag)["books"]
        return_books(bag_id=bag, book_ids=[books[n]["book_id"] for n in chosen])

    for request in traces:
        agent(request)
    routine = memory.compile([trace.id for trace in memory.traces()], name="library")
    tools = {"get_bag": get_bag, "return_books": return_books}

    def run(request: str) -> list[list[str]]:
        written.clear()
        result = memory.run(routine, {"request": request}, tools)
        assert result.status == ("ok" if written else "needs_input")
        return list(written)

    yield run
    memory.close()


@pytest.mark.parametrize(
    "request_",
    [
        "Return Dune of #B-708. I want Emma.",
        "Return Dune of #B-708, I have Emma.",
        "Return Dune and let me have Emma of #B-708.",
        "Return Dune of #B-708 because of Emma.",
        "Return Dune since I have Emma of #B-708.",
        "Return Dune for Emma of #B-708.",
        "Return Dune with Emma of #B-708.",
        "Return Dune of #B-708 / Emma.",
        "Return Dune of #B-708; Emma.",
        "Return Dune of #B-708 and these.",
        "Return it. I want Dune of #B-708.",
        "Return this since I have Dune of #B-708.",
        "Return the book about Dune of #B-708.",
    ],
)
def test_what_is_named_elsewhere_is_asked_about(returned: Returned, request_: str) -> None:
    assert returned(request_) == []


@pytest.mark.parametrize(
    ("request_", "books"),
    [
        ("Return Dune of #B-708.", ["705512"]),
        ("Return Dune, Emma and Faust of #B-708.", ["705512", "715512", "725512"]),
        ("Please return of #B-708 Dune and Emma.", ["705512", "715512"]),
    ],
)
def test_what_stands_in_one_enumeration_is_taken(
    returned: Returned, request_: str, books: list[str]
) -> None:
    assert returned(request_) == [books]
