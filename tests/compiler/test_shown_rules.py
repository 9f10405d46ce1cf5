"""Rules that several recordings show: which record, from when on, how much, and when not at all."""

import json
import tempfile
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from em.compiler.example import Call, Example
from em.compiler.learner import learn
from em.runner.engine import run_routine
from em.runner.run import RunResult

Json = dict[str, Any]
Task = Callable[["Yard", Json], None]
NAMES = "Ada Berg,Ben Cole,Cleo Dunn,Dov Ek,Ewa Falk,Finn Gray,Gina Holt,Hal Ives".split(",")
TOWNS = ["Easton", "Kirkby", "Norwell"]
MODELS = ["digger", "crane", "roller", "loader", "mixer"]


def day(number: int) -> str:
    return (date(2027, 3, 1) + timedelta(days=number)).isoformat()


class Yard:
    """A yard that rents out machines. Every table is a function of the number of a customer."""

    READS = (
        "find_customer",
        "list_rentals",
        "get_rental",
        "get_model",
        "list_rates",
        "list_depots",
    )
    READS += ("get_site", "list_visits")
    WRITES = ("extend_rental", "send_letter", "charge", "refund", "book_visit", "order_part")

    def __init__(self, changes: Json | None = None) -> None:
        self.changes = changes or {}
        self.calls: list[Call] = []

    def call(self, tool: str, **args: Any) -> Any:
        is_read = tool in self.READS
        result = getattr(self, tool)(**args) if is_read else {"done": True, **args}
        result = self.changes.get(tool, lambda one: one)(result)
        self.calls.append(Call(tool, args, result, None, "read" if is_read else "write"))
        return result

    def tools(self) -> dict[str, Callable[..., Any]]:
        def tool(name: str) -> Callable[..., Any]:
            return lambda **args: self.call(name, **args)

        return {name: tool(name) for name in (*self.READS, *self.WRITES)}

    @property
    def writes(self) -> list[tuple[str, Json]]:
        return [(one.tool, one.args) for one in self.calls if one.effect == "write"]

    def find_customer(self, phone: str) -> Json:
        number = int(phone[-3:])
        name, town = NAMES[number % len(NAMES)], TOWNS[number % 3]
        partners = [NAMES[(number + step) % len(NAMES)] for step in (3, 5)]
        return {"customer_id": f"C-{number}", "name": name, "town": town, "partners": partners}

    def list_rentals(self, customer_id: str) -> list[Json]:
        number = int(customer_id[2:])
        rows = [
            {
                "rental_id": f"R-{number}{at}",
                "model": MODELS[(number + at // 2) % len(MODELS)],
                "state": "running" if (at + number) % 2 else "returned",
            }
            for at in range(4)
        ]
        return rows if number % 3 else rows[::-1]

    def get_rental(self, rental_id: str) -> Json:
        number = int(rental_id[2:-1])
        return {
            "rental_id": rental_id,
            "due": day(20 + number % 9),
            "weight": 2 + (number * 7) % 23,
            "trade": ["tracks", "motor", "hydraulics"][number % 3],
            "allowed": ["gravel", "sand", "clay"][: 1 + number % 3],
        }

    def get_model(self, model: str) -> Json:
        return {"model": model, "daily": 20 + 5 * MODELS.index(model), "grace_days": 3 + len(model)}

    def list_rates(self) -> list[Json]:
        return [{"up_to": limit, "fee": fee} for limit, fee in ((9, 41), (16, 67), (40, 95))]

    def list_depots(self) -> list[Json]:
        return [
            {"depot_id": f"D-{at}{trade}", "trade": trade, "km": 5 + at, "free": at % 3}
            for trade in ("tracks", "motor", "hydraulics")
            for at in range(4)
        ]

    def get_site(self, site: str) -> Json:
        number = int(site[1:])
        return {"site": site, "grounds": ["rock", "mud", "sand"][number % 3 : number % 3 + 2]}

    def list_visits(self, rental_id: str) -> list[Json]:
        number = int(rental_id[2:-1])
        return [{"day": day(number % 5), "hours": 10 + number}, {"day": day(3), "hours": 7}]


def running(yard: Yard, given: Json) -> Json:
    """Find the running rental of a model."""
    customer = yard.call("find_customer", phone=given["phone"])
    rows = yard.call("list_rentals", customer_id=customer["customer_id"])
    (row,) = [one for one in rows if one["model"] == given["model"] and one["state"] == "running"]
    return {**customer, **row}


def facts(number: int) -> Json:
    return {"phone": f"0161 555 {number:03}", "model": MODELS[number % len(MODELS)]}


def recorded(task: Task, made: Callable[[int], Json], numbers: Sequence[int]) -> list[Example]:
    found = []
    for number in numbers:
        yard = Yard()
        task(yard, made(number))
        found.append(Example(made(number), yard.calls, name=str(number)))
    return found


class Learnt:
    """A routine that was learnt, and how it does beside the task it was learnt from."""

    def __init__(self, task: Task, made: Callable[[int], Json] = facts, count: int = 16) -> None:
        self.task, self.made = task, made
        self.routine = learn("task", recorded(task, made, range(100, 100 + count))).routine

    @property
    def text(self) -> str:
        return str(self.routine["steps"])

    def run(self, given: Json, changes: Json | None = None) -> tuple[RunResult, Yard]:
        yard = Yard(changes)
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "routine.yaml").write_text(json.dumps(self.routine))
            return run_routine(folder, given, yard.tools()), yard

    def is_right(self, number: int) -> bool:
        right = Yard()
        self.task(right, self.made(number))
        ended, yard = self.run(self.made(number))
        assert ended.status == "ok" or not yard.writes, "a hand-over comes before the first write"
        return ended.status == "ok" and yard.writes == right.writes

    def stops(self, given: Json, changes: Json | None = None) -> bool:
        ended, yard = self.run(given, changes)
        return ended.status != "ok" and not yard.writes


UNSEEN = range(300, 330)


def extend(yard: Yard, given: Json) -> None:
    yard.call("extend_rental", rental_id=running(yard, given)["rental_id"], until=given["until"])


def with_until(number: int) -> Json:
    return {**facts(number), "until": day(30 + number % 20)}


def test_of_two_records_that_inputs_name_the_one_in_the_usual_state_is_taken() -> None:
    learnt = Learnt(extend, with_until)
    assert all(learnt.is_right(number) for number in UNSEEN)
    over = {"list_rentals": lambda rows: [{**row, "state": "returned"} for row in rows]}
    assert learnt.stops(with_until(301), over)


def look_at_all(yard: Yard, given: Json) -> None:
    customer = yard.call("find_customer", phone=given["phone"])
    rows = yard.call("list_rentals", customer_id=customer["customer_id"])
    chosen = [one for one in rows if one["model"] == given["model"] and one["state"] == "running"]
    looked = rows if given["phone"].endswith(("3", "6", "9")) else chosen
    records = [yard.call("get_rental", rental_id=row["rental_id"]) for row in looked]
    (record,) = [one for one in records if one["rental_id"] == chosen[0]["rental_id"]]
    yard.call("extend_rental", rental_id=record["rental_id"], until=record["due"])


def test_who_looked_at_all_records_acted_on_the_one_that_was_meant() -> None:
    learnt = Learnt(look_at_all)
    assert all(learnt.is_right(number) for number in UNSEEN)


def price(yard: Yard, given: Json) -> None:
    rental = running(yard, given)
    record = yard.call("get_rental", rental_id=rental["rental_id"])
    rates = [one for one in yard.call("list_rates") if record["weight"] <= one["up_to"]]
    fee = min(rates, key=lambda one: one["up_to"])["fee"]
    yard.call("charge", customer_id=rental["customer_id"], amount=fee)


def test_a_price_is_taken_from_the_band_that_a_number_falls_into() -> None:
    learnt = Learnt(price)
    assert "at_least(rental_2.weight)" in learnt.text
    assert all(learnt.is_right(number) for number in UNSEEN)
    heavy = {"get_rental": lambda one: {**one, "weight": 41}}
    assert learnt.stops(facts(301), heavy)


def order(yard: Yard, given: Json) -> None:
    rental = running(yard, given)
    record = yard.call("get_rental", rental_id=rental["rental_id"])
    depots = [one for one in yard.call("list_depots") if one["trade"] == record["trade"]]
    depot = min((one for one in depots if one["free"] > 0), key=lambda one: one["km"])
    yard.call("order_part", rental_id=rental["rental_id"], depot_id=depot["depot_id"])


def test_an_element_is_chosen_by_what_another_record_says_and_by_what_is_in_stock() -> None:
    learnt = Learnt(order)
    assert "trade=rental_2.trade" in learnt.text
    assert "free=at_least(1)" in learnt.text
    assert all(learnt.is_right(number) for number in UNSEEN)
    empty = {"list_depots": lambda rows: [{**row, "free": 0} for row in rows]}
    assert learnt.stops(facts(301), empty)


def prolong(yard: Yard, given: Json) -> None:
    rental = running(yard, given)
    model = yard.call("get_model", model=given["model"])
    until = date.fromisoformat(given["asked_on"]) + timedelta(days=model["grace_days"])
    amount = given["days"] * model["daily"]
    yard.call("extend_rental", rental_id=rental["rental_id"], until=until.isoformat())
    yard.call("charge", customer_id=rental["customer_id"], amount=amount)


def with_days(number: int) -> Json:
    return {**facts(number), "asked_on": day(number % 37), "days": 2 + number % 11}


def test_a_date_and_an_amount_are_computed_from_what_was_read() -> None:
    learnt = Learnt(prolong, with_days)
    assert "later(asked_on, " in learnt.text
    assert all(learnt.is_right(number) for number in UNSEEN)


def late(yard: Yard, given: Json) -> None:
    rental = running(yard, given)
    record = yard.call("get_rental", rental_id=rental["rental_id"])
    yard.call("extend_rental", rental_id=rental["rental_id"], until=record["due"])
    left = date.fromisoformat(record["due"]) - date.fromisoformat(given["asked_on"])
    if left.days < 4:
        yard.call("charge", customer_id=rental["customer_id"], amount=25)


def asked(number: int) -> Json:
    due = 20 + number % 9
    return {**facts(number), "asked_on": day(due - (0, 2, 3, 5, 8, 1, 9, 12)[number % 8])}


def test_a_write_depends_on_how_many_days_are_left_and_is_not_guessed_between() -> None:
    learnt = Learnt(late, asked, count=24)
    unclear = {**asked(303), "asked_on": day(20 + 303 % 9 - 4)}
    assert all(learnt.is_right(number) for number in UNSEEN)
    assert learnt.stops(unclear), "no recording had four days left"


def visit(yard: Yard, given: Json) -> None:
    rental = running(yard, given)
    yard.call("extend_rental", rental_id=rental["rental_id"], until=given["until"])
    if "visit_on" in given:
        yard.call("book_visit", rental_id=rental["rental_id"], day=given["visit_on"])


def with_visit(number: int) -> Json:
    more = {"visit_on": day(60 + number % 7)} if number % 3 else {}
    return {**with_until(number), **more}


def test_a_write_that_takes_an_optional_input_is_made_if_it_is_given() -> None:
    learnt = Learnt(visit, with_visit, count=6)
    assert "given(visit_on)" in learnt.text
    assert all(learnt.is_right(number) for number in UNSEEN)


def settle(yard: Yard, given: Json) -> None:
    rental = running(yard, given)
    record = yard.call("get_rental", rental_id=rental["rental_id"])
    is_over = record["weight"] > given["agreed"]
    yard.call("extend_rental", rental_id=rental["rental_id"], until=record["due"])
    yard.call("charge" if is_over else "refund", customer_id=rental["customer_id"], amount=30)


def with_agreed(number: int) -> Json:
    return {**facts(number), "agreed": 3 + (number * 5) % 19}


def test_of_two_writes_that_exclude_each_other_just_one_is_made() -> None:
    learnt = Learnt(settle, with_agreed, count=40)
    rights = [learnt.is_right(number) for number in UNSEEN]
    assert sum(rights) > len(rights) / 2
    for number in UNSEEN:
        _, yard = learnt.run(with_agreed(number))
        assert len(yard.writes) in (0, 2)


def collect(yard: Yard, given: Json) -> None:
    rental = running(yard, given)
    record = yard.call("get_rental", rental_id=rental["rental_id"])
    yard.call("get_site", site=given["site"])
    yard.call("extend_rental", rental_id=record["rental_id"], until=record["due"])


def with_person(number: int) -> Json:
    customer = Yard().find_customer(facts(number)["phone"])
    names = [customer["name"], *customer["partners"]]
    return {**facts(number), "by": names[number % 3], "site": f"S{number}"}


def test_a_person_is_one_of_those_that_the_record_names() -> None:
    learnt = Learnt(collect, with_person)
    assert all(learnt.is_right(number) for number in UNSEEN)
    stranger = {**with_person(301), "by": NAMES[(301 + 1) % len(NAMES)]}
    assert learnt.stops(stranger)


def dig(yard: Yard, given: Json) -> None:
    rental = running(yard, given)
    record = yard.call("get_rental", rental_id=rental["rental_id"])
    site = yard.call("get_site", site=given["site"])
    assert given["ground"] not in site["grounds"]
    yard.call("extend_rental", rental_id=record["rental_id"], until=record["due"])


def with_ground(number: int) -> Json:
    grounds = Yard().get_site(f"S{number}")["grounds"]
    other = [one for one in ("rock", "mud", "sand") if one not in grounds]
    return {**facts(number), "site": f"S{number}", "ground": other[number % len(other)]}


def test_what_never_was_in_a_list_of_its_kind_must_not_be_in_it() -> None:
    learnt = Learnt(dig, with_ground)
    assert all(learnt.is_right(number) for number in UNSEEN)
    mud = {"get_site": lambda one: {**one, "grounds": ["rock", "mud", "sand"]}}
    assert learnt.stops(with_ground(301), mud)


def letters(yard: Yard, given: Json) -> None:
    customer = yard.call("find_customer", phone=given["phone"])
    for model in given["models"]:
        text = f"Dear {customer['name']}, please bring back the {model} until {given['until']}."
        yard.call("send_letter", customer_id=customer["customer_id"], text=text)


def with_models(number: int) -> Json:
    count = 1 + number % 3
    models = [MODELS[(number + at) % len(MODELS)] for at in range(count)]
    return {"phone": facts(number)["phone"], "models": models, "until": day(number % 40)}


def test_the_words_of_the_letter_before_are_no_values_of_the_next_one() -> None:
    learnt = Learnt(letters, with_models, count=6)
    assert all(learnt.is_right(number) for number in UNSEEN)


def remind(yard: Yard, given: Json) -> None:
    rental = running(yard, given)
    yard.call("extend_rental", rental_id=rental["rental_id"], until=given["until"])
    for other in given.get("others", ()):
        yard.call("send_letter", customer_id=rental["customer_id"], text=f"Bring the {other} too.")


def with_others(number: int) -> Json:
    others = [MODELS[(number + 1 + at) % len(MODELS)] for at in range(number % 3)]
    return {**with_until(number), **({"others": others} if others else {})}


def test_a_list_that_is_not_always_given_is_gone_through_if_it_is() -> None:
    learnt = Learnt(remind, with_others)
    assert all(learnt.is_right(number) for number in UNSEEN)


def enter(yard: Yard, given: Json) -> None:
    customer = yard.call("find_customer", phone=given["phone"])
    rows = yard.call("list_rentals", customer_id=customer["customer_id"])
    named = {row["rental_id"]: row for row in rows}
    keys = [named[one["rental_id"]]["rental_id"] for one in given["entries"]]
    for key in keys:
        yard.call("list_visits", rental_id=key)
    for one in given["entries"]:
        yard.call("book_visit", rental_id=one["rental_id"], day=given["day"], hours=one["hours"])


def with_entries(number: int) -> Json:
    entries = [
        {"rental_id": f"R-{number}{at}", "hours": 200 + number + 13 * at}
        for at in range(1 + number % 2)
    ]
    return {"phone": facts(number)["phone"], "day": day(10 + number % 9), "entries": entries}


def test_what_was_read_in_every_round_is_read_again_and_limits_what_is_entered() -> None:
    learnt = Learnt(enter, with_entries)
    assert "list_visits" in learnt.text
    assert all(learnt.is_right(number) for number in UNSEEN)
    later = {"list_visits": lambda rows: [{**row, "day": day(90)} for row in rows]}
    assert learnt.stops(with_entries(301), later)


def test_a_routine_of_few_recordings_stops_where_its_explanations_disagree() -> None:
    few = Learnt(extend, with_until, count=3)
    many = Learnt(extend, with_until, count=20)
    done = [few.is_right(number) for number in UNSEEN]
    assert all(
        many.is_right(number) for number, is_done in zip(UNSEEN, done, strict=True) if is_done
    )


def test_a_date_at_the_end_of_the_calendar_is_compiled_like_any_other() -> None:
    calls = [
        Call(
            "get_model", {"model": "crane"}, {"model": "crane", "valid": "9999-12-31", "days": 30}
        ),
        Call("extend_rental", {"until": "2027-03-05"}, {"done": True}, None, "write"),
    ]
    made = learn("extend", [Example({"model": "crane"}, calls)])
    assert made.constants == [("extend_rental.until", "2027-03-05")]
