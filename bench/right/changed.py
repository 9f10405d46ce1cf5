"""A world or an input that changed in a way that matters: no routine may act."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import Any, NamedTuple

from bench.figure import Figure
from bench.right.recording import Recording
from bench.right.shelf import Shelf, Shelved
from bench.right.suite import Suite
from bench.right.verdict import Tally, Verdict, zero
from bench.right.world import Domain, World

SOURCE = "a file"
COLUMNS = ("asked", "refused", "acted", "tried", "not compiled")
PAYMENT = re.compile(r"(?:credit_card|gift_card|paypal|certificate)_\d+")
UNAVAILABLE = "no longer available"
RECORDS = {"retail": ("orders", "order_id"), "airline": ("reservations", "reservation_id")}
READS = {"orders": "get_order_details", "reservations": "get_reservation_details"}


class Case(NamedTuple):
    """One change: its kind, the input to run with, and what to change in the database."""

    kind: str
    what: str
    given: Mapping[str, Any]
    change: Callable[[World], None] = lambda _world: None


def acts(shelf: Shelf, suite: Suite, *, verbose: bool) -> Iterator[Figure]:
    """Run each routine after each change. Calling a tool that writes is an act.

    `acted` changed the database; for `tried` the tool itself refused, or has no effect there.
    Availability is counted apart. Every agent of these cases read it.
    """
    what = f"{suite.title}, changed"
    tally = Tally(what, columns=COLUMNS, verbose=verbose)
    apart = Tally(f"{what} availability", columns=COLUMNS, verbose=verbose)
    for run in suite.runs:
        if not suite.aims[run.name].examples:
            continue
        made = shelf.compiled(run, SOURCE)
        if isinstance(made, str):
            tally.add("(not compiled)", run.name, Verdict("not compiled", made))
            continue
        for case in _cases(run, made, suite):
            counted = apart if case.kind == UNAVAILABLE else tally
            counted.add(case.kind, f"{run.name} | {case.what}", _one(shelf, suite, made, case))
    tally.show()
    yield zero(f"{what}: acts", tally.count("acted", "tried"), tally.count())
    if apart.count():
        apart.show()
        yield zero(f"{what} availability: acts", apart.count("acted", "tried"), apart.count())


def _one(shelf: Shelf, suite: Suite, made: Shelved, case: Case) -> Verdict:
    world = World(suite.domain)
    case.change(world)
    before = world.changes()
    ended = shelf.run(made, case.given, world, journalled=False)
    said = f"{ended.status}: {ended.said}"
    if world.asked:
        kind = "acted" if world.changes() != before else "tried"
        return Verdict(kind, f"{world.asked[0].tool} {world.asked[0].args}; {said}")
    if ended.status == "ok":
        return Verdict("acted", "ended ok without its writes")
    return Verdict("asked" if ended.status == "needs_input" else "refused", said)


def _cases(run: Recording, made: Shelved, suite: Suite) -> Iterator[Case]:
    table, name = RECORDS[suite.domain.name]
    writes = suite.aims[run.name].examples
    keys = dict.fromkeys(str(write.args[name]) for write in writes if name in write.args)
    for key in keys:
        if _was_read(run, table, name, key, suite.domain):
            yield from _status(made, suite.domain, table, key)
            if _was_identified(run, suite.domain.tables[table][key]["user_id"]):
                yield from _owner(made, suite.domain, table, key)
    if suite.domain.name == "retail":
        yield from _sold_out(run, made, suite)
    else:
        yield from _flight_cancelled(run, made, suite)
    yield from _payment(made, suite)
    yield from _hidden(made)


def _was_read(run: Recording, table: str, name: str, key: str, of: Domain) -> bool:
    """Whether the agent looked at a record before it wrote; else nothing can be checked."""
    for tool, args in run.calls:
        if tool == READS[table] and args.get(name) == key:
            return True
        if tool in of.writes and args.get(name) == key:
            return False
    return False


def _was_identified(run: Recording, user: str) -> bool:
    """Whether the agent found out who the customer is."""
    return any(
        answer == user or (tool == "get_user_details" and args.get("user_id") == user)
        for (tool, args), answer in zip(run.calls, run.answers, strict=True)
    )


def _status(made: Shelved, of: Domain, table: str, key: str) -> Iterator[Case]:
    """The record that is written has another status."""
    status = of.tables[table][key].get("status")
    if status is not None:
        now = "cancelled" if status == "processed" else "processed"
        change = _set_field(table, key, "status", now)
        yield Case("status changed", f"{key} is {now}", made.input, change)


def _owner(made: Shelved, of: Domain, table: str, key: str) -> Iterator[Case]:
    """The record that is written belongs to somebody else, or somebody else's is named."""
    record = of.tables[table][key]
    owner = record["user_id"]
    other = next(user for user in sorted(of.tables["users"]) if user != owner)
    change = _set_field(table, key, "user_id", other)
    yield Case("owner changed", f"{key} is {other}'s", made.input, change)
    theirs = next(
        found
        for found, one in sorted(of.tables[table].items())
        if one["user_id"] != owner and one.get("status") == record.get("status")
    )
    given = _replaced(made.input, key, theirs)
    if given != made.input:
        yield Case("another person's record given", f"{theirs} instead of {key}", given)


def _set_field(table: str, key: str, field: str, value: str) -> Callable[[World], None]:
    def change(world: World) -> None:
        world.data[table][key][field] = value

    return change


def _sold_out(run: Recording, made: Shelved, suite: Suite) -> Iterator[Case]:
    """An item that was chosen is not available any more."""
    seen = {args.get("product_id") for tool, args in run.calls if tool == "get_product_details"}
    wanted = {
        item
        for write in suite.aims[run.name].examples
        for item in write.args.get("new_item_ids", ())
    }
    for product, record in suite.domain.tables["products"].items():
        for item in wanted & record["variants"].keys() if product in seen else ():

            def change(world: World, product: str = product, item: str = item) -> None:
                world.data["products"][product]["variants"][item]["available"] = False

            yield Case(UNAVAILABLE, f"item {item}", made.input, change)


def _flight_cancelled(run: Recording, made: Shelved, suite: Suite) -> Iterator[Case]:
    """A flight that was found by a search is not available any more."""
    flights = suite.domain.tables["flights"]
    searched = [args for tool, args in run.calls if tool == "search_direct_flight"]
    legs = {
        (leg["flight_number"], leg["date"])
        for write in suite.aims[run.name].examples
        for leg in write.args.get("flights", ())
        if leg["flight_number"] in flights
    }
    for number, date in sorted(legs):
        ends = {key: flights[number][key] for key in ("origin", "destination")}
        if {**ends, "date": date} not in searched:
            continue

        def change(world: World, number: str = number, date: str = date) -> None:
            world.data["flights"][number]["dates"][date]["status"] = "cancelled"

        yield Case(UNAVAILABLE, f"flight {number} on {date}", made.input, change)


def _payment(made: Shelved, suite: Suite) -> Iterator[Case]:
    """A payment method in the input belongs to somebody else."""
    users = suite.domain.tables["users"]
    for own in sorted(set(PAYMENT.findall(json.dumps(made.input)))):
        source = own.rpartition("_")[0]
        theirs = next(
            method
            for _, user in sorted(users.items())
            for method in user["payment_methods"]
            if method.startswith(source) and own not in user["payment_methods"]
        )
        given = _replaced(made.input, own, theirs)
        yield Case("somebody else's payment method", f"{theirs} instead of {own}", given)


def _hidden(made: Shelved) -> Iterator[Case]:
    """An input is missing, and another one differs from the recorded one."""
    for hidden in made.input:
        given = {name: value for name, value in made.input.items() if name != hidden}
        for other in list(given)[:1]:
            given[other] = another(given[other])
        yield Case("input hidden", f"without {hidden}", given)


def _replaced(value: Any, old: str, new: str) -> Any:
    return json.loads(json.dumps(value).replace(old, new))


def another(value: Any) -> Any:
    """Another value of the same shape."""
    if isinstance(value, str):
        moved = re.sub(r"\d", lambda digit: str((int(digit[0]) + 1) % 10), value)
        return moved if moved != value else f"{value}x"
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, list):
        return [another(item) for item in value]
    return {key: another(item) for key, item in deepcopy(value).items()}
