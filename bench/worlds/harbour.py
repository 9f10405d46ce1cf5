"""A shipping port: vessels, berths, pilots, containers and storage charges."""

import random
from datetime import date, timedelta

from bench.worlds.world import (
    Facts,
    Kind,
    Row,
    ToolError,
    World,
    amount_of,
    need,
    only,
    optional,
    tables,
    words,
)

DAYS = [(date(2027, 3, 2) + timedelta(days=n)).isoformat() for n in range(60)]
LENGTHS = [205, 115, 295, 165, 140, 245, 320, 180, 270, 230]
DEPTHS = [9.4, 7.6, 12.6, 8.2, 9.0, 11.0, 14.5, 10.5, 13.5, 12.0]
FIRMS = (
    "Lindqvist Foods,Okafor Textiles,Brandt Machinery,Sorensen Timber,Costa Ceramics,Yilmaz Fruit,"
    "Harper Cycles,Nakamura Optics,Petrov Glass,Moreau Wines,Lindqvist Foods East,Brandt Machinery"
    " Parts,Costa Ceramics Export,Dlamini Coffee,Haugen Seafood,Rossi Marble"
).split(",")
HAULIERS = "Quayside Haulage,Blue Lorry,Marsh & Sons,Tern Logistics,Ironbridge Trucks".split(",")


class Harbour(World):
    """The port's records from March to April 2027."""

    NAME = "harbour"
    READS = words(
        "find_vessels get_vessel list_berths get_berth list_bookings get_notices get_fairway "
        "get_forecast find_party_by_email find_parties get_container list_containers "
        "find_hauliers get_tariff"
    )
    WRITES = words("book_berth order_pilot order_tugs release_container create_charge")
    TABLES = tables(
        "vessels vessel_id VS, berths berth_id B, bookings booking_id BK, fairways fairway FW, "
        "forecasts date FC, parties party_id PA, containers number CN, hauliers haulier_id HA, "
        "tariffs size TF, pilot_orders pilot_order_id PO, tug_orders tug_order_id TO, "
        "releases release_code RC, charges charge_id CH"
    )

    def __init__(self) -> None:
        super().__init__()
        rng = random.Random(101)
        for day in DAYS:
            self.add("forecasts", date=day, wind_kn=rng.randrange(5, 33))
        limits = {"max_draught_m": 13.0, "tug_above_draught_m": 8.5, "max_wind_kn": 26, "tugs": 1}
        self.add("fairways", fairway="north", **limits, pilots_from="05:00", pilots_until="21:00")
        limits = {"max_draught_m": 14.0, "tug_above_draught_m": 9.8, "max_wind_kn": 30, "tugs": 2}
        self.add("fairways", fairway="south", **limits, pilots_from="06:00", pilots_until="22:00")
        for size, rate, days in (("20ft", 18.5, 60), ("40ft", 31, 45), ("reefer", 74.25, 21)):
            self.add("tariffs", size=size, daily_rate=rate, currency="EUR", max_days=days)
        self._build_ships(rng)
        self._build_cargo(rng)

    def _build_ships(self, rng: random.Random) -> None:
        first = ["Baltic", "Nordic", "Amber", "Silver", "Western", "Coral"]
        nouns = ["Heron", "Trader", "Star", "Pioneer", "Breeze", "Carrier"]
        names = [f"{word} {noun}" for word in first for noun in nouns]
        names += [f"{word} {noun} II" for word, noun in zip(first, nouns, strict=True)]
        rng.shuffle(names)
        for name in names:
            length, imo = rng.randrange(90, 281, 5), str(rng.randrange(9000000, 9999999))
            draught = round(4 + length / 35 + rng.uniform(-1, 1.6), 1)
            size = {"length_m": length, "draught_m": draught}
            self.add("vessels", name=name, imo=imo, **size, detained=rng.random() < 0.06)
        for n, (length, depth) in enumerate(zip(LENGTHS, DEPTHS, strict=True)):
            size = {"length_m": length, "depth_m": depth}
            fairway = "north" if n % 2 else "south"
            self.add("berths", berth_id=f"B{n + 1:02}", **size, closed=False, fairway=fairway)
        for day in DAYS:
            vessels = rng.sample(self.where("vessels"), 12)
            for berth in self.where("berths"):
                vessel = next((v for v in vessels if _fits(v, berth)), None)
                if rng.random() < 0.4 and vessel:
                    vessels.remove(vessel)
                    self.add_booking(berth["berth_id"], vessel, day)

    def _build_cargo(self, rng: random.Random) -> None:
        for name in FIRMS:
            email = f"freight@{name.lower().replace(' ', '-')}.example"
            owner = self.add("parties", name=name, email=email, account="open")["party_id"]
            for _ in range(9):
                self.add(
                    "containers",
                    number=f"{rng.choice(['MSKU', 'TGHU', 'CMAU'])}{rng.randrange(10**6, 10**7)}",
                    consignee_id=owner,
                    size=rng.choice(["20ft", "40ft", "reefer"]),
                    status="discharged" if rng.random() < 0.9 else "on_vessel",
                    customs="cleared" if rng.random() < 0.9 else "inspection",
                    weight_kg=rng.randrange(4000, 26000),
                )
        for name in HAULIERS:
            self.add("hauliers", name=name, licence="valid", trucks=rng.randrange(3, 40))

    def add_booking(self, berth_id: str, vessel: Row, day: str) -> Row:
        names = {"berth_id": berth_id, "vessel_id": vessel["vessel_id"]}
        return self.add("bookings", **names, date=day, status="confirmed")

    # Read tools

    def find_vessels(self, name: str) -> list[Row]:
        return self.search("vessels", "name", name, "vessel_id", "name", "imo")

    def get_vessel(self, vessel_id: str) -> Row:
        return self.get("vessels", vessel_id)

    def list_berths(self, date: str) -> list[Row]:
        taken = [row["berth_id"] for row in self.where("bookings", date=self.iso(date))]
        free = [not r["closed"] and r["berth_id"] not in taken for r in self.where("berths")]
        rows = [optional(row, "berth_id", "length_m", "depth_m") for row in self.where("berths")]
        return [{**row, "free": is_free} for row, is_free in zip(rows, free, strict=True)]

    def get_berth(self, berth_id: str) -> Row:
        return self.get("berths", berth_id)

    def list_bookings(self, vessel_id: str) -> list[Row]:
        return self.where("bookings", vessel_id=vessel_id)

    def get_notices(self, date: str) -> list[str]:
        return [f"Tide tables for {self.iso(date)} are at the gate.", "Basin speed limit: 5 kn."]

    def get_fairway(self, fairway: str) -> Row:
        return self.get("fairways", fairway)

    def get_forecast(self, date: str) -> Row:
        return self.get("forecasts", self.iso(date))

    def find_party_by_email(self, email: str) -> Row:
        return self.pick("parties", email=email)

    def find_parties(self, name: str) -> list[Row]:
        return self.search("parties", "name", name, "party_id", "name", "email", "account")

    def get_container(self, number: str) -> Row:
        return self.get("containers", number)

    def list_containers(self, party_id: str) -> list[Row]:
        rows = self.where("containers", consignee_id=party_id)
        return [{"number": row["number"], "size": row["size"]} for row in rows]

    def find_hauliers(self, name: str) -> list[Row]:
        return self.search("hauliers", "name", name, "haulier_id", "name", "licence")

    def get_tariff(self, size: str) -> Row:
        return self.get("tariffs", size)

    # Write tools

    def book_berth(self, vessel_id: str, berth_id: str, date: str) -> Row:
        self.get("berths", berth_id)
        return self.add_booking(berth_id, self.get("vessels", vessel_id), self.iso(date))

    def order_pilot(self, booking_id: str, time: str) -> Row:
        self.get("bookings", booking_id)
        return self.add("pilot_orders", booking_id=booking_id, time=time)

    def order_tugs(self, pilot_order_id: str, count: int) -> Row:
        self.get("pilot_orders", pilot_order_id)
        return self.add("tug_orders", pilot_order_id=pilot_order_id, count=count)

    def release_container(self, number: str, haulier_id: str = "", remark: str = "") -> Row:
        row = self.get("containers", number)
        if not haulier_id:
            raise ToolError("haulier_id is required to release a container")
        self.get("hauliers", haulier_id)
        row.update(status="released")
        return self.add("releases", number=number, haulier_id=haulier_id, remark=remark)

    def create_charge(
        self, party_id: str, container: str, amount: float, currency: str, text: str
    ) -> Row:
        names = {"party_id": self.get("parties", party_id)["party_id"], "container": container}
        return self.add("charges", **names, amount=amount, currency=currency, text=text)


def _fits(vessel: Row, berth: Row) -> bool:
    long_enough = amount_of(berth, "length_m") >= amount_of(vessel, "length_m")
    return long_enough and amount_of(berth, "depth_m") >= amount_of(vessel, "draught_m")


def _read_vessel(world: Harbour, name: str, variant: int) -> Row:
    """Find a vessel by its exact name and read its record."""
    if variant % 9 == 4:
        world.stumble("get_vessel", vessel_id=name)
    searched = name.split(maxsplit=1)[0] if variant % 6 == 5 else name
    found = only(world.call("find_vessels", name=searched), name=name)
    vessel: Row = world.call("get_vessel", vessel_id=found["vessel_id"])
    need(vessel["detained"] is False, "the vessel is detained")
    return vessel


BASE = Harbour()


# Book the shortest free berth that is long and deep enough.
def _berth_facts(number: int) -> Facts:
    rng = random.Random(f"berth_vessel/{number}")
    while True:
        vessel, day = rng.choice(BASE.where("vessels", detained=False)), rng.choice(DAYS)
        free = [row for row in BASE.list_berths(date=day) if row["free"] and _fits(vessel, row)]
        if free and not BASE.where("bookings", vessel_id=vessel["vessel_id"], date=day):
            return {"vessel": vessel["name"], "date": day}


def _solve_berth(world: Harbour, facts: Facts, variant: int) -> None:
    day = facts["date"]
    if variant % 5 == 2:
        world.call("get_notices", date=day)
    berths = world.call("list_berths", date=day) if variant % 4 == 3 else None
    vessel = _read_vessel(world, facts["vessel"], variant)
    booked = world.call("list_bookings", vessel_id=vessel["vessel_id"])
    need(all(row["date"] != day for row in booked), "booked on that day already")
    if variant % 7 == 1:
        world.stumble("list_berths", date=day.replace("-", "/"))
    berths = berths or world.call("list_berths", date=day)
    suitable = [row for row in berths if row["free"] is True and _fits(vessel, row)]
    need(suitable, "no free berth fits")
    best = min(suitable, key=lambda row: float(row["length_m"]))
    names = {"vessel_id": vessel["vessel_id"], "berth_id": best["berth_id"]}
    world.call("book_berth", **names, date=day)


BERTH_WORDS = (
    "Please book a berth for the {vessel} on {date}.",
    "The {vessel} arrives on {date} and needs a berth, the shortest one that takes her.",
    "Berth request: vessel {vessel}, day {date}.",
    "On {date} we expect the {vessel}; find her a free berth that fits and book it.",
)
BERTH = Kind("berth_vessel", Harbour, _berth_facts, _solve_berth, BERTH_WORDS)


def _ship(world: Harbour, facts: Facts) -> Row:
    return world.pick("vessels", name=facts["vessel"])


BERTH.trap("vessel detained", lambda w, f: _ship(w, f).update(detained=True))
BERTH.trap("no such vessel", differ=lambda f: {"vessel": "Polar Lantern"})
BERTH.trap(
    "two vessels with that name",
    lambda w, f: w.add("vessels", **{**_ship(w, f), "vessel_id": "VS-9001", "imo": "9000001"}),
)
BERTH.trap("no berth free", lambda w, f: [row.update(closed=True) for row in w.where("berths")])
BERTH.trap("booked that day", lambda w, f: w.add_booking("B07", _ship(w, f), f["date"]))
BERTH.trap("draught missing", lambda w, f: _ship(w, f).pop("draught_m"))


# Order a pilot, and tugs if the vessel's draught is above the limit of its fairway.
def _pilot_facts(number: int) -> Facts:
    rng = random.Random(f"pilot/{number}")
    while True:
        booking = rng.choice(BASE.where("bookings"))
        vessel = BASE.get("vessels", booking["vessel_id"])
        way = BASE.get("fairways", BASE.get("berths", booking["berth_id"])["fairway"])
        wind = BASE.get("forecasts", booking["date"])["wind_kn"]
        shallow = vessel["draught_m"] <= way["max_draught_m"]
        if shallow and wind <= way["max_wind_kn"] and not vessel["detained"]:
            time = f"{rng.randrange(6, 21):02}:{rng.randrange(0, 60, 5):02}"
            return {"vessel": vessel["name"], "date": booking["date"], "time": time}


def _solve_pilot(world: Harbour, facts: Facts, variant: int) -> None:
    if variant % 3 == 1:
        forecast = world.call("get_forecast", date=facts["date"])
    vessel = _read_vessel(world, facts["vessel"], variant)
    bookings = world.call("list_bookings", vessel_id=vessel["vessel_id"])
    booking = only(bookings, date=facts["date"])
    need(booking["status"] == "confirmed", "the booking is not confirmed")
    berth = world.call("get_berth", berth_id=booking["berth_id"])
    way = world.call("get_fairway", fairway=berth["fairway"])
    if variant % 3 != 1:
        forecast = world.call("get_forecast", date=facts["date"])
    if variant % 8 == 6:
        world.call("get_notices", date=facts["date"])
    need(forecast["wind_kn"] <= way["max_wind_kn"], "too much wind")
    need(way["pilots_from"] <= facts["time"] <= way["pilots_until"], "no pilots at that time")
    draught, tug_above = amount_of(vessel, "draught_m"), amount_of(way, "tug_above_draught_m")
    need(draught <= amount_of(way, "max_draught_m"), "too deep for the fairway")
    if variant % 10 == 7:
        world.stumble("order_pilot", booking_id=vessel["vessel_id"], time=facts["time"])
    order = world.call("order_pilot", booking_id=booking["booking_id"], time=facts["time"])
    if draught > tug_above:
        world.call("order_tugs", pilot_order_id=order["pilot_order_id"], count=way["tugs"])


PILOT_WORDS = (
    "Order a pilot for the {vessel} on {date} at {time}, with tugs if she needs them.",
    "The {vessel} comes in on {date}; the pilot should board at {time}. Tugs as required.",
    "Pilot for {vessel}, {date}, {time}. Check whether the fairway asks for tugs.",
    "We need a pilot at {time} on {date} for the {vessel} (and tugs, if the draught says so).",
)
PILOT = Kind("order_pilot", Harbour, _pilot_facts, _solve_pilot, PILOT_WORDS)


def _booking(world: Harbour, facts: Facts) -> Row:
    return world.pick("bookings", vessel_id=_ship(world, facts)["vessel_id"], date=facts["date"])


PILOT.trap("before the pilots' hours", differ=lambda f: {"time": "03:15"})
PILOT.trap("wind above the limit", lambda w, f: w.get("forecasts", f["date"]).update(wind_kn=44))
PILOT.trap("booking cancelled", lambda w, f: _booking(w, f).update(status="cancelled"))
PILOT.trap("two bookings that day", lambda w, f: w.add_booking("B07", _ship(w, f), f["date"]))
PILOT.trap(
    "tug limit missing",
    lambda w, f: [row.update(tug_above_draught_m=None) for row in w.where("fairways")],
)
PILOT.trap("no booking that day", differ=lambda f: {"date": "2027-05-20"})


# Release several containers of one consignee to a haulier.
def _release_facts(number: int) -> Facts:
    rng = random.Random(f"release_containers/{number}")
    party = rng.choice(BASE.where("parties"))
    ready = {"consignee_id": party["party_id"], "status": "discharged", "customs": "cleared"}
    boxes = rng.sample(BASE.where("containers", **ready), rng.randint(1, 4))
    facts: Facts = {
        "consignee_email": party["email"],
        "containers": [row["number"] for row in boxes],
        "haulier": rng.choice(HAULIERS),
    }
    if rng.random() < 0.35:
        facts["remark"] = rng.choice(["Driver calls ahead", "Bring own chassis", "Gate 4 only"])
    return facts


def _solve_release(world: Harbour, facts: Facts, variant: int) -> None:
    numbers = facts["containers"]
    need(numbers and len(set(numbers)) == len(numbers), "no containers, or one twice")
    if variant % 4 == 1:
        haulier = only(world.call("find_hauliers", name=facts["haulier"]), name=facts["haulier"])
    party = world.call("find_party_by_email", email=facts["consignee_email"])
    need(party["account"] == "open", "account not open")
    if variant % 5 == 3:
        world.call("list_containers", party_id=party["party_id"])
    for number in numbers:
        row = world.call("get_container", number=number)
        need(row["consignee_id"] == party["party_id"], "somebody else's container")
        need(row["status"] == "discharged" and row["customs"] == "cleared", "not ready")
    if variant % 4 != 1:
        haulier = only(world.call("find_hauliers", name=facts["haulier"]), name=facts["haulier"])
    need(haulier["licence"] == "valid", "no valid licence")
    if variant % 7 == 5:
        world.stumble("release_container", number=numbers[0])
    for number in numbers:
        names = {"number": number, "haulier_id": haulier["haulier_id"]}
        world.call("release_container", **names, **optional(facts, "remark"))


RELEASE_WORDS = (
    "Release {containers} of {consignee_email} to {haulier}.{remark}",
    "{haulier} picks up these containers for {consignee_email}: {containers}.{remark}",
    "Please make the releases for {consignee_email}, haulier {haulier}: {containers}.{remark}",
    "Customer {consignee_email} wants {containers} handed to {haulier}.{remark}",
)
RELEASE = Kind(
    "release_containers",
    Harbour,
    _release_facts,
    _solve_release,
    RELEASE_WORDS,
    lambda f: {
        "containers": ", ".join(f["containers"]),
        "remark": f" Remark for each: {f['remark']}." if "remark" in f else "",
    },
)


def _box(world: Harbour, facts: Facts) -> Row:
    return world.get("containers", facts["containers"][-1])


RELEASE.trap("customs not cleared", lambda w, f: _box(w, f).update(customs="inspection"))
RELEASE.trap("somebody else's", lambda w, f: _box(w, f).update(consignee_id="PA-1099"))
RELEASE.trap("listed twice", differ=lambda f: {"containers": f["containers"] * 2})
RELEASE.trap("no containers", differ=lambda f: {"containers": []})
RELEASE.trap("released already", lambda w, f: _box(w, f).update(status="released"))
RELEASE.trap(
    "haulier's licence expired",
    lambda w, f: w.pick("hauliers", name=f["haulier"]).update(licence="expired"),
)


# Charge storage: days times the daily rate.
def _charge_facts(number: int) -> Facts:
    rng = random.Random(f"charge_storage/{number}")
    box = rng.choice(BASE.where("containers"))
    customer = BASE.get("parties", box["consignee_id"])["name"]
    facts = {"customer": customer, "container": box["number"], "size": box["size"]}
    return {**facts, "days": rng.randint(2, 20)}


def _solve_charge(world: Harbour, facts: Facts, variant: int) -> None:
    days = facts["days"]
    need(days > 0, "no days to charge")
    if variant % 3 == 2:
        tariff = world.call("get_tariff", size=facts["size"])
    if variant % 8 == 3:
        world.stumble("find_party_by_email", email=facts["customer"])
    party = only(world.call("find_parties", name=facts["customer"]), name=facts["customer"])
    need(party["account"] == "open", "account not open")
    if variant % 6 == 4:
        world.call("list_containers", party_id=party["party_id"])
    box = world.call("get_container", number=facts["container"])
    need(box["consignee_id"] == party["party_id"], "somebody else's container")
    need(box["size"] == facts["size"], "another size")
    if variant % 3 != 2:
        tariff = world.call("get_tariff", size=facts["size"])
    need(days <= amount_of(tariff, "max_days"), "more days than the tariff allows")
    names = {"party_id": party["party_id"], "container": facts["container"]}
    price = {"amount": days * amount_of(tariff, "daily_rate"), "currency": tariff["currency"]}
    text = f"Storage of {facts['container']} for {days} days"
    world.call("create_charge", **names, **price, text=text)


CHARGE_WORDS = (
    "Charge {customer} for {days} days of storage of {container} ({size}).",
    "{container}, a {size} box of {customer}, stood here {days} days; please bill the storage.",
    "Storage charge: customer {customer}, container {container}, size {size}, {days} days.",
    "Bill {days} days at the {size} rate to {customer} for container {container}.",
)
CHARGE = Kind("charge_storage", Harbour, _charge_facts, _solve_charge, CHARGE_WORDS)
CHARGE.trap("negative days", differ=lambda f: {"days": -3})
CHARGE.trap("far too many days", differ=lambda f: {"days": 4000})
CHARGE.trap("unknown size", differ=lambda f: {"size": "45ft"})
CHARGE.trap("another size", differ=lambda f: {"size": "20ft" if f["size"] != "20ft" else "40ft"})
CHARGE.trap(
    "account closed",
    lambda w, f: w.pick("parties", name=f["customer"]).update(account="closed"),
)
CHARGE.trap(
    "somebody else's container",
    lambda w, f: w.get("containers", f["container"]).update(consignee_id="PA-1099"),
)
CHARGE.trap(
    "rate is a text",
    lambda w, f: w.get("tariffs", f["size"]).update(daily_rate="on request"),
)

KINDS = [BERTH, PILOT, RELEASE, CHARGE]
