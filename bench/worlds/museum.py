"""A museum registry: objects, vitrines, borrowers, loans and valuations."""

import random
from datetime import date, timedelta
from itertools import zip_longest

from bench.worlds.world import (
    Facts,
    Kind,
    Row,
    World,
    amount_of,
    need,
    only,
    optional,
    tables,
    words,
)

COLOURS = "Blue Gilded Painted Broken Small Striped Carved".split()
THINGS = "Amphora,Mask,Astrolabe,Music Box,Tapestry,Reliquary,Lantern,Chess Set,Globe".split(",")
CITIES = "Aarhus Bergen Cordoba Dresden Evora Ghent Lyon Malmo Porto Turin".split()
CLIMATES = ["dry", "stable", "cold"]


def _later(day: str, days: int) -> str:
    return (date.fromisoformat(day) + timedelta(days=days)).isoformat()


class Museum(World):
    """The registry in the spring of 2027."""

    NAME = "museum"
    READS = words(
        "find_institutions find_institution_by_email get_institution list_loans get_loan "
        "find_objects get_object list_reservations list_valuations get_vitrine "
        "list_vitrines"
    )
    WRITES = words("extend_loan open_loan insure_loan move_object")
    TABLES = tables(
        "objects object_id OB, vitrines code VI, institutions institution_id IN, "
        "loans loan_id LO, valuations valuation_id VA, reservations reservation_id RS, "
        "policies policy_id PY, moves move_id MV"
    )

    def __init__(self) -> None:
        super().__init__()
        rng = random.Random(303)
        titles = [f"{colour} {thing}" for colour in COLOURS for thing in THINGS]
        titles += [f"{title} (fragment)" for title in rng.sample(titles, 17)]
        rng.shuffle(titles)
        for title in titles:
            self._add_object(rng, title)
        for n in range(42):
            holds = "OB-0001" if rng.random() < 0.2 else None
            code = f"R{n // 6 + 1}-{n % 6 + 1:02}"
            self.add("vitrines", code=code, climate=rng.choice(CLIMATES), holds=holds)
        for city in CITIES:
            self._add_institution(rng, city)

    def _add_object(self, rng: random.Random, title: str) -> None:
        status = "conservation" if rng.random() < 0.06 else "in_store"
        row = self.add("objects", title=title, climate=rng.choice(CLIMATES), status=status)
        for days in rng.sample(range(0, 4000, 7), rng.randint(2, 5)):
            value = {"date": _later("2015-06-01", days), "amount": rng.randrange(20, 900) * 500}
            by = rng.choice(["Hale", "Ito", "Weiss"])
            self.add("valuations", object_id=row["object_id"], **value, by=by)
        if rng.random() < 0.4:
            start = _later("2027-05-01", rng.randrange(0, 300))
            dates = {"start": start, "end": _later(start, 60)}
            self.add("reservations", object_id=row["object_id"], **dates)

    def _add_institution(self, rng: random.Random, city: str) -> None:
        name = f"{city} {rng.choice(['City Museum', 'Art House', 'Collection'])}"
        until = _later("2028-06-01", rng.randrange(0, 700))
        terms = {"agreement_until": until, "suspended": False}
        email = f"registrar@{city.lower()}.example"
        borrower = self.add("institutions", name=name, email=email, **terms)["institution_id"]
        for status in ["returned", *["active"] * rng.randint(1, 4), "returned"]:
            items = rng.sample(self.where("objects", status="in_store"), rng.randint(1, 2))
            first = "2026-09-01" if status == "active" else "2025-02-01"
            self.add_loan(borrower, items, _later(first, rng.randrange(0, 120)), status)
            for row in items:
                row["status"] = "on_loan" if status == "active" else row["status"]

    def add_loan(self, borrower_id: str, objects: list[Row], start: str, status: str) -> Row:
        items = [{**optional(row, "object_id", "title"), "recalled": False} for row in objects]
        dates = {"start": start, "end": _later(start, 240), "latest_end": _later(start, 480)}
        return self.add("loans", borrower_id=borrower_id, status=status, **dates, items=items)

    # Read tools

    def find_institutions(self, name: str) -> list[Row]:
        return self.search("institutions", "name", name, "institution_id", "name")

    def find_institution_by_email(self, email: str) -> Row:
        return self.pick("institutions", email=email)

    def get_institution(self, institution_id: str) -> Row:
        return self.get("institutions", institution_id)

    def list_loans(self, borrower_id: str) -> list[Row]:
        rows = self.where("loans", borrower_id=borrower_id)
        return [optional(row, "loan_id", "status", "start") for row in rows]

    def get_loan(self, loan_id: str) -> Row:
        return self.get("loans", loan_id)

    def find_objects(self, title: str) -> list[Row]:
        return self.search("objects", "title", title, "object_id", "title")

    def get_object(self, object_id: str) -> Row:
        return self.get("objects", object_id)

    def list_reservations(self, object_id: str) -> list[Row]:
        return self.where("reservations", object_id=object_id)

    def list_valuations(self, object_id: str) -> list[Row]:
        return self.where("valuations", object_id=object_id)

    def get_vitrine(self, code: str) -> Row:
        return self.get("vitrines", code)

    def list_vitrines(self, climate: str) -> list[str]:
        return [row["code"] for row in self.where("vitrines", climate=climate)]

    # Write tools

    def extend_loan(self, loan_id: str, until: str) -> Row:
        self.get("loans", loan_id)["end"] = self.iso(until)
        return {"loan_id": loan_id, "end": until}

    def open_loan(
        self, borrower_id: str, object_id: str, start: str, end: str, conditions: str = ""
    ) -> Row:
        self.get("institutions", borrower_id)
        items = [self.get("objects", object_id)]
        row = self.add_loan(borrower_id, items, self.iso(start), "requested")
        row.update(end=self.iso(end), conditions=conditions)
        return {"loan_id": row["loan_id"], "status": "requested"}

    def insure_loan(self, loan_id: str, amount: int) -> Row:
        return self.add("policies", loan_id=self.get("loans", loan_id)["loan_id"], amount=amount)

    def move_object(self, object_id: str, vitrine: str) -> Row:
        row = self.get("objects", object_id)
        self.get("vitrines", vitrine)["holds"] = object_id
        row["status"] = "on_display"
        return self.add("moves", object_id=object_id, vitrine=vitrine)


BASE = Museum()


def _read_object(world: Museum, title: str, variant: int) -> Row:
    """Find an object by its exact title and read its record."""
    if variant % 8 == 7:
        world.stumble("get_object", object_id=title)
    searched = title.split(" (", maxsplit=1)[0] if variant % 3 == 1 else title
    found = only(world.call("find_objects", title=searched), title=title)
    record: Row = world.call("get_object", object_id=found["object_id"])
    return record


# Extend the one active loan of a borrower that holds the object.
def _extend_facts(number: int) -> Facts:
    rng = random.Random(f"extend_loan/{number}")
    loan = rng.choice(BASE.where("loans", status="active"))
    borrower = BASE.get("institutions", loan["borrower_id"])["name"]
    title = rng.choice(loan["items"])["title"]
    until = _later(loan["end"], rng.randrange(14, 239))
    return {"borrower": borrower, "object": title, "until": until}


def _solve_extend(world: Museum, facts: Facts, variant: int) -> None:
    name = facts["borrower"]
    searched = name.split()[0] if variant % 5 == 3 else name
    found = only(world.call("find_institutions", name=searched), name=name)
    borrower = world.call("get_institution", institution_id=found["institution_id"])
    need(borrower["suspended"] is False, "borrower suspended")
    loans = world.call("list_loans", borrower_id=borrower["institution_id"])
    if variant % 6 == 4:
        world.call("find_objects", title=facts["object"])
    read = [row for row in loans if row["status"] == "active" or variant % 7 == 2]
    records = [world.call("get_loan", loan_id=row["loan_id"]) for row in read]
    active = [row for row in records if row["status"] == "active"]
    pairs = [(row, item) for row in active for item in row["items"]]
    holding = [pair for pair in pairs if pair[1]["title"] == facts["object"]]
    need(len(holding) == 1, f"{len(holding)} active loans hold it")
    loan, item = holding[0]
    need(item["recalled"] is False, "object recalled")
    need(loan["end"] < facts["until"] <= loan["latest_end"], "outside of what the loan allows")
    if variant % 9 == 8:
        wrong = facts["until"].replace("-", "/")
        world.stumble("extend_loan", loan_id=loan["loan_id"], until=wrong)
    world.call("extend_loan", loan_id=loan["loan_id"], until=facts["until"])


EXTEND_WORDS = (
    "{borrower} would like to keep the {object} until {until}; extend the loan.",
    "Please extend the loan with the {object} at {borrower} to {until}.",
    "Loan extension: {borrower}, object {object}, new end {until}.",
    "The {object} may stay with {borrower} until {until}. Update their loan, please.",
)
EXTEND = Kind("extend_loan", Museum, _extend_facts, _solve_extend, EXTEND_WORDS)


def _held(world: Museum, facts: Facts) -> tuple[Row, Row]:
    """Return the active loan that holds the object, and the item in it."""
    pairs = [(row, item) for row in world.where("loans", status="active") for item in row["items"]]
    return next(pair for pair in pairs if pair[1]["title"] == facts["object"])


def _second_loan(world: Museum, facts: Facts) -> None:
    loan, item = _held(world, facts)
    world.add_loan(loan["borrower_id"], [item], loan["start"], "active")


EXTEND.trap("two loans hold it", _second_loan)
EXTEND.trap("no loan holds it", lambda w, f: _held(w, f)[1].update(title="Plaster Cast"))
EXTEND.trap("after the latest end", differ=lambda f: {"until": "2031-01-31"})
EXTEND.trap("earlier than the present end", differ=lambda f: {"until": "2027-03-15"})
EXTEND.trap(
    "borrower suspended",
    lambda w, f: w.pick("institutions", name=f["borrower"]).update(suspended=True),
)
EXTEND.trap("object recalled", lambda w, f: _held(w, f)[1].update(recalled=True))


# Move objects into vitrines: the first object into the first vitrine, and so on.
def _move_facts(number: int) -> Facts:
    rng = random.Random(f"move_objects/{number}")
    objects = rng.sample(BASE.where("objects", status="in_store"), rng.randint(1, 4))
    codes: list[str] = []
    for row in objects:
        fitting = BASE.where("vitrines", holds=None, climate=row["climate"])
        codes.append(rng.choice([v["code"] for v in fitting if v["code"] not in codes]))
    return {"objects": [row["title"] for row in objects], "vitrines": codes}


def _solve_move(world: Museum, facts: Facts, variant: int) -> None:
    titles, codes = facts["objects"], facts["vitrines"]
    need(titles and len(titles) == len(codes), "objects and vitrines don't pair up")
    need(len(set(codes)) == len(codes) and len(set(titles)) == len(titles), "one listed twice")
    records: list[Row] = []
    places: list[Row] = []
    if variant % 4 == 2:
        places = [world.call("get_vitrine", code=code) for code in codes]
    for title, code in zip(titles, codes, strict=True):
        records.append(_read_object(world, title, variant))
        if variant % 4 != 2:
            places.append(world.call("get_vitrine", code=code))
    if variant % 7 == 6:
        world.call("list_vitrines", climate=records[0]["climate"])
    for record, place in zip(records, places, strict=True):
        need(record["status"] == "in_store", "object not in store")
        need(place["holds"] is None, "vitrine occupied")
        need(place["climate"] == record["climate"], "another climate")
    for record, place in zip(records, places, strict=True):
        world.call("move_object", object_id=record["object_id"], vitrine=place["code"])


def _show_pairs(facts: Facts) -> dict[str, str]:
    pairs = zip_longest(facts["objects"], facts["vitrines"], fillvalue="(not given)")
    return {"pairs": "; ".join(f"{title} in {code}" for title, code in pairs)}


MOVE_WORDS = (
    "Please put on display: {pairs}.",
    "Moves for today: {pairs}.",
    "Take these from the store to their vitrines: {pairs}.",
    "New display: {pairs}. Record the moves.",
)
MOVE = Kind("move_objects", Museum, _move_facts, _solve_move, MOVE_WORDS, _show_pairs)


def _several(facts: Facts) -> bool:
    return len(facts["objects"]) > 1


def _last_vitrine(world: Museum, facts: Facts) -> Row:
    return world.get("vitrines", facts["vitrines"][-1])


def _change_climate(world: Museum, facts: Facts) -> None:
    vitrine = _last_vitrine(world, facts)
    vitrine["climate"] = CLIMATES[CLIMATES.index(vitrine["climate"]) - 1]


MOVE.trap("one vitrine too few", None, lambda f: {"vitrines": f["vitrines"][:-1]}, _several)
MOVE.trap("vitrine occupied", lambda w, f: _last_vitrine(w, f).update(holds="OB-0002"))
MOVE.trap(
    "object on loan",
    lambda w, f: w.pick("objects", title=f["objects"][-1]).update(status="on_loan"),
)
MOVE.trap("another climate", _change_climate)
MOVE.trap(
    "one object twice",
    None,
    lambda f: {"objects": [*f["objects"][:-1], f["objects"][0]]},
    _several,
)


# Open a loan and insure it for the object's latest valuation.
def _open_facts(number: int) -> Facts:
    rng = random.Random(f"open_loan/{number}")
    while True:
        row = rng.choice(BASE.where("objects", status="in_store"))
        borrower = rng.choice(BASE.where("institutions"))
        start = _later("2027-04-15", rng.randrange(0, 300))
        end = _later(start, rng.randrange(30, 150))
        reserved = BASE.list_reservations(row["object_id"])
        if end <= borrower["agreement_until"] and not _overlapping(reserved, start, end):
            break
    facts = {"borrower_email": borrower["email"], "object": row["title"]}
    facts |= {"start": start, "end": end}
    if rng.random() < 0.35:
        facts["conditions"] = rng.choice(["No flash", "Max 50 lux", "Courier travels along"])
    return facts


def _overlapping(reserved: list[Row], start: str, end: str) -> list[Row]:
    return [row for row in reserved if row["start"] <= end and start <= row["end"]]


def _solve_open(world: Museum, facts: Facts, variant: int) -> None:
    start, end = facts["start"], facts["end"]
    need(start < end, "the loan ends before it starts")
    if variant % 2:
        record = _read_object(world, facts["object"], variant)
    borrower = world.call("find_institution_by_email", email=facts["borrower_email"])
    need(borrower["suspended"] is False, "borrower suspended")
    need(end <= borrower["agreement_until"], "the agreement ends before the loan")
    if variant % 5 == 1:
        world.call("list_loans", borrower_id=borrower["institution_id"])
    if not variant % 2:
        record = _read_object(world, facts["object"], variant)
    need(record["status"] == "in_store", "object not in store")
    reserved = world.call("list_reservations", object_id=record["object_id"])
    need(not _overlapping(reserved, start, end), "object reserved")
    valuations = world.call("list_valuations", object_id=record["object_id"])
    need(valuations, "no valuation")
    latest = max(valuations, key=lambda row: str(row["date"]))
    args = {"object_id": record["object_id"], "start": start, "end": end}
    if variant % 10 == 9:
        world.stumble("open_loan", borrower_id=facts["borrower_email"], **args)
    args |= {"borrower_id": borrower["institution_id"], **optional(facts, "conditions")}
    loan = world.call("open_loan", **args)
    world.call("insure_loan", loan_id=loan["loan_id"], amount=amount_of(latest, "amount"))


OPEN_WORDS = (
    "Lend the {object} to {borrower_email} from {start} to {end} and insure it.{conditions}",
    "{borrower_email} borrows the {object}, {start} until {end}; set up the loan and the"
    " insurance.{conditions}",
    "New loan: {object}, borrower {borrower_email}, {start} to {end}, insured at the latest"
    " valuation.{conditions}",
    "Open an insured loan for {borrower_email}: {object}, {start} to {end}.{conditions}",
)
OPEN = Kind(
    "open_loan",
    Museum,
    _open_facts,
    _solve_open,
    OPEN_WORDS,
    lambda f: {"conditions": f" Conditions: {f['conditions']}." if "conditions" in f else ""},
)


def _object(world: Museum, facts: Facts) -> Row:
    return world.pick("objects", title=facts["object"])


def _end_agreement(world: Museum, facts: Facts) -> None:
    row = world.pick("institutions", email=facts["borrower_email"])
    row["agreement_until"] = _later(facts["end"], -1)


def _reserve(world: Museum, facts: Facts) -> None:
    dates = {"start": _later(facts["start"], -9), "end": _later(facts["end"], -9)}
    world.add("reservations", object_id=_object(world, facts)["object_id"], **dates)


def _forget_valuations(world: Museum, facts: Facts) -> None:
    for row in world.list_valuations(_object(world, facts)["object_id"]):
        row["object_id"] = "OB-0001"


OPEN.trap("agreement ends before the loan", _end_agreement)
OPEN.trap("object in conservation", lambda w, f: _object(w, f).update(status="conservation"))
OPEN.trap("object reserved", _reserve)
OPEN.trap("no valuation", _forget_valuations)
OPEN.trap("ends before it starts", differ=lambda f: {"start": f["end"], "end": f["start"]})

KINDS = [EXTEND, MOVE, OPEN]
