"""An energy supplier: customers, contracts, meters, readings, visits, invoices and payments."""

import random
from datetime import date, timedelta
from functools import cache

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

FIRST = [
    "Carla",
    "Carl",
    "Nora",
    "Norah",
    "Paul",
    "Paula",
    "Ines",
    "Dan",
    "Daniel",
    "Mia",
    "Jo Ann",
    "Jo",
    "Viktor",
    "Ruth",
]
LAST = [
    "Kern",
    "Kerner",
    "Wood",
    "Woodley",
    "Falk",
    "Falkner",
    "Brandt",
    "Sommer",
    "Winter",
    "Winters",
    "Abbas",
    "Costa",
]
TOWNS = {"Marlow": "north", "Marlow Heath": "north", "Tarn": "east", "Selby": "west"}
TOWNS |= {"Orwick": "south", "Pelham": "west", "Dunmore": "east"}
STREETS = [
    "Mill Lane",
    "Mill Lane North",
    "High Street",
    "Station Road",
    "Oak Avenue",
    "Quay",
    "Church Row",
]
_CUSTOMER = "customer_id"
PARTS = ["morning", "afternoon"]
COMMODITIES = ["electricity", "gas"]
CHANNELS = ["email", "sms", "post"]
TARIFFS = [  # name, commodity, price of a kWh, standing charge of a day
    ("Basic Power", "electricity", 0.36, 0.44),
    ("Green Power", "electricity", 0.33, 0.52),
    ("Green Power Plus", "electricity", 0.31, 0.61),
    ("Night Power", "electricity", 0.27, 0.58),
    ("Basic Gas", "gas", 0.12, 0.35),
    ("Fixed Gas", "gas", 0.1, 0.47),
    ("Fixed Gas Plus", "gas", 0.09, 0.5),
]


def _later(day: str, days: int) -> str:
    return (date.fromisoformat(day) + timedelta(days=days)).isoformat()


def _days(start: str, end: str) -> int:
    return (date.fromisoformat(end) - date.fromisoformat(start)).days


@cache
def _weekdays(first: str, last: str) -> list[str]:
    days = [_later(first, n) for n in range(_days(first, last) + 1)]
    return [day for day in days if date.fromisoformat(day).weekday() < 5]


class Energy(World):
    """The supplier's back office at the end of March 2027."""

    NAME = "energy"
    READS = words(
        "find_customers find_customer_by_number find_customer_by_email find_customer_by_iban "
        "get_customer list_contracts get_contract get_instalment_plan get_tariff list_meters "
        "get_meter list_readings list_slots list_invoices get_invoice list_bank_payments "
        "get_payment"
    )
    WRITES = words(
        "set_instalment book_visit confirm_visit add_reading assign_payment stop_reminders "
        "end_contract create_invoice pay_refund set_postal_address"
    )
    TABLES = tables(
        "customers customer_id CU, contracts contract_id CT, plans plan_id PL, tariffs tariff_id "
        "TF, meters meter_id MT, readings reading_id RD, slots slot_id SL, visits visit_id VS, "
        "confirmations confirmation_id CN, invoices invoice_id IV, payments payment_id PY, "
        "refunds refund_id RF"
    )

    def __init__(self) -> None:
        super().__init__()
        rng = random.Random(909)
        for name, commodity, price, standing in TARIFFS:
            prices = {"unit_price": price, "standing_per_day": standing}
            self.add("tariffs", name=name, commodity=commodity, **prices)
        for day in _weekdays("2027-04-06", "2027-05-07"):
            for district in sorted(set(TOWNS.values())):
                self._add_slots(rng, district, day)
        names = rng.sample([f"{first} {last}" for first in FIRST for last in LAST], 104)
        names += rng.sample(names, 16)  # namesakes, in another town
        for name in names:
            self._add_customer(rng, name)
        for customer in list(self.db["customers"].values()):
            self._add_invoices(rng, customer)

    def _add_slots(self, rng: random.Random, district: str, day: str) -> None:
        kinds = [(part, commodity) for part in PARTS for commodity in COMMODITIES]
        for part, commodity in rng.sample(kinds, rng.choice([2, 3, 4, 4])):
            values = {"district": district, "day": day, "part": part, "commodity": commodity}
            self.add("slots", **values, free=rng.choice([0, 1, 1, 2, 3, 4]))

    def _add_customer(self, rng: random.Random, name: str) -> None:
        taken = [row["town"] for row in self.where("customers", name=name)]
        town = rng.choice([town for town in TOWNS if town not in taken])
        row = self.add("customers", name=name, town=town)
        row["number"] = f"{20 + len(self.db['customers']) % 7}-{rng.randrange(10**5, 10**6)}"
        mail = name.lower().replace(" ", ".") + ("2" if taken else "")
        row.update(email=f"{mail}@post.example", contact=rng.choice(CHANNELS))
        row["iban"] = f"XX{rng.randrange(10**11, 10**12)}" if rng.random() < 0.9 else None
        if rng.random() < 0.2:
            row["note"] = rng.choice(["Dog in the yard", "Prefers letters", "Key with neighbour"])
        streets = rng.sample(STREETS, 3)
        homes = [f"{street} {rng.randint(1, 80)}" for street in streets]
        row["postal_address"] = f"{homes[0]}, {town}"
        for home in homes[: rng.choice([1, 1, 2])]:
            self._add_contract(rng, row, home, "electricity", "active")
            if rng.random() < 0.65:
                self._add_contract(rng, row, home, "gas", "active")
        if rng.random() < 0.45:  # a former home, or a former contract for the present one
            self._add_contract(rng, row, rng.choice(homes), rng.choice(COMMODITIES), "ended")

    def _add_contract(
        self, rng: random.Random, customer: Row, street: str, commodity: str, status: str
    ) -> None:
        active = status == "active"
        tariff = rng.choice(self.where("tariffs", commodity=commodity))
        meter = self.add("meters", customer_id=customer["customer_id"], commodity=commodity)
        meter["serial"] = f"{commodity[0].upper()}{rng.randrange(10**5, 10**6)}"
        meter.update(street=street, district=TOWNS[customer["town"]], built=rng.randint(2004, 2024))
        meter["status"] = "installed" if active else "removed"
        planned = active and rng.random() < 0.1
        meter["visit_planned"] = _later("2027-04-06", rng.randrange(0, 28)) if planned else None
        day, value = _later("2025-01-10", rng.randrange(0, 200)), rng.randrange(900, 40000)
        history: list[Row] = []
        for _ in range(rng.randint(2, 4)):
            kind = rng.choice(["customer", "customer", "estimated", "visit"])
            history.append({"read_on": day, "value": value, "kind": kind})
            day, value = _later(day, rng.randrange(60, 150)), value + rng.randrange(150, 1500)
        meter["expected_max"] = history[-1]["value"] + rng.randrange(8, 30) * 100
        for entry in rng.sample(history, len(history)):
            self.add("readings", meter_id=meter["meter_id"], **entry)
        billed, instalment = rng.choice(history[-2:]), rng.randrange(35, 190)
        row = self.add("contracts", customer_id=customer["customer_id"], commodity=commodity)
        row.update(street=street, status=status, tariff_id=tariff["tariff_id"])
        row.update(meter_id=meter["meter_id"], disputed=active and rng.random() < 0.06)
        row.update(billed_to=billed["read_on"], billed_reading=billed["value"])
        row["advance_paid"] = instalment * rng.randint(2, 8)
        limits = {"lowest": instalment - rng.randrange(3, 25), "highest": 2 * instalment}
        review = {"next_change": rng.choice(["2027-04-01", "2027-05-01", "2027-06-01"])}
        review["state"] = "under_review" if rng.random() < 0.1 else "open"
        key = {"contract_id": row["contract_id"], "amount": instalment}
        self.add("plans", **key, **limits, **review)

    def _add_invoices(self, rng: random.Random, customer: Row) -> None:
        contracts = self.where("contracts", customer_id=customer["customer_id"])
        for _ in range(rng.randint(3, 7)):
            due = _later("2026-08-01", rng.randrange(0, 235))
            amount = round(rng.uniform(28, 640), 2)
            status = rng.choice(["paid", "paid", "cancelled", "open", "open", "with_collectors"])
            contract = rng.choice(contracts)["contract_id"]
            if status == "open" and rng.random() < 0.3:  # the same amount was due before
                self.add_invoice(customer, contract, amount, _later(due, -30), "paid")
            invoice = self.add_invoice(customer, contract, amount, due, status)
            if status == "open" and due < "2027-03-10":
                invoice["reminder_level"] = rng.choice([0, 0, 1, 1, 2])
            if status in ("open", "paid") and customer["iban"] and rng.random() < 0.6:
                self._add_payment(rng, customer, invoice)

    def add_invoice(
        self, customer: Row, contract_id: str, amount: float, due: str, status: str
    ) -> Row:
        values = {"contract_id": contract_id, "amount": amount, "due": due, "status": status}
        key = customer["customer_id"]
        return self.add("invoices", customer_id=key, **values, reminder_level=0)

    def _add_payment(self, rng: random.Random, customer: Row, invoice: Row) -> None:
        payer = customer["name"]
        if rng.random() < 0.2:  # somebody of the family pays from the same account
            payer = f"{rng.choice(FIRST)} {payer.split()[-1]}"
        day = rng.choice(_weekdays("2027-03-15", "2027-03-26"))
        reference = rng.choice(["Energy bill", "Thank you", customer["number"], "", "March"])
        values = {"received_on": day, "payer": payer, "amount": invoice["amount"]}
        values |= {"iban": customer["iban"], "reference": reference}
        paid = invoice["status"] == "paid"
        state: Row = {"state": "assigned" if paid else "unassigned"}
        state["invoice_id"] = invoice["invoice_id"] if paid else None
        self.add("payments", **values, **state)

    # Read tools

    def find_customers(self, name: str) -> list[Row]:
        return self.search("customers", "name", name, "customer_id", "name", "town")

    def find_customer_by_number(self, number: str) -> Row:
        return self.pick("customers", number=number)

    def find_customer_by_email(self, email: str) -> Row:
        row = self.pick("customers", email=email)
        return optional(row, "customer_id", "name", "town", "number", "email")

    def find_customer_by_iban(self, iban: str) -> Row:
        row = self.pick("customers", iban=iban)
        return optional(row, "customer_id", "name", "town", "number", "iban")

    def get_customer(self, customer_id: str) -> Row:
        return self.get("customers", customer_id)

    def list_contracts(self, customer_id: str) -> list[Row]:
        rows = self.where("contracts", customer_id=self.get("customers", customer_id)[_CUSTOMER])
        return [optional(row, "contract_id", "commodity", "street", "status") for row in rows]

    def get_contract(self, contract_id: str) -> Row:
        return self.get("contracts", contract_id)

    def get_instalment_plan(self, contract_id: str) -> Row:
        return self.pick("plans", contract_id=self.get("contracts", contract_id)["contract_id"])

    def get_tariff(self, tariff_id: str) -> Row:
        return self.get("tariffs", tariff_id)

    def list_meters(self, customer_id: str) -> list[Row]:
        rows = self.where("meters", customer_id=self.get("customers", customer_id)[_CUSTOMER])
        return [optional(row, "meter_id", "serial", "commodity", "street") for row in rows]

    def get_meter(self, meter_id: str) -> Row:
        return self.get("meters", meter_id)

    def list_readings(self, meter_id: str) -> list[Row]:
        return self.where("readings", meter_id=self.get("meters", meter_id)["meter_id"])

    def list_slots(self, district: str, day: str) -> list[Row]:
        if district not in TOWNS.values():
            raise ToolError(f"unknown district {district!r}")
        return self.where("slots", district=district, day=self.iso(day))

    def list_invoices(self, customer_id: str) -> list[Row]:
        rows = self.where("invoices", customer_id=self.get("customers", customer_id)[_CUSTOMER])
        return [optional(row, "invoice_id", "amount", "due", "status") for row in rows]

    def get_invoice(self, invoice_id: str) -> Row:
        return self.get("invoices", invoice_id)

    def list_bank_payments(self, day: str) -> list[Row]:
        rows = self.where("payments", received_on=self.iso(day))
        return [optional(row, "payment_id", "payer", "amount", "state") for row in rows]

    def get_payment(self, payment_id: str) -> Row:
        return self.get("payments", payment_id)

    # Write tools

    def set_instalment(self, contract_id: str, amount: int, starts_on: str) -> Row:
        plan = self.get_instalment_plan(contract_id)
        plan.update(amount=_positive(amount), next_change=self.iso(starts_on))
        return {"contract_id": contract_id, "amount": amount, "starts_on": starts_on}

    def book_visit(self, meter_id: str, slot_id: str, note: str = "") -> Row:
        meter, slot = self.get("meters", meter_id), self.get("slots", slot_id)
        meter["visit_planned"] = slot["day"]
        slot["free"] -= 1
        row = self.add("visits", meter_id=meter_id, slot_id=slot_id, note=note)
        return {"visit_id": row["visit_id"], "status": "planned"}

    def confirm_visit(self, visit_id: str, channel: str) -> Row:
        if channel not in CHANNELS:
            raise ToolError(f"unknown channel {channel!r}")
        key = self.get("visits", visit_id)["visit_id"]
        return self.add("confirmations", visit_id=key, channel=channel)

    def add_reading(self, meter_id: str, value: int, read_on: str, source: str = "") -> Row:
        self.get("meters", meter_id)
        if isinstance(value, bool) or not isinstance(value, int):
            raise ToolError(f"invalid reading {value!r}")
        values = {"read_on": self.iso(read_on), "value": value, "kind": "customer"}
        row = self.add("readings", meter_id=meter_id, **values, source=source)
        return {"reading_id": row["reading_id"], "status": "accepted"}

    def assign_payment(self, payment_id: str, invoice_id: str, note: str = "") -> Row:
        payment, invoice = self.get("payments", payment_id), self.get("invoices", invoice_id)
        payment.update(state="assigned", invoice_id=invoice_id, note=note)
        invoice["status"] = "paid"
        return {"payment_id": payment_id, "invoice_id": invoice_id, "state": "assigned"}

    def stop_reminders(self, invoice_id: str, reason: str) -> Row:
        self.get("invoices", invoice_id).update(reminder_level=0, reminders_stopped=reason)
        return {"invoice_id": invoice_id, "reminder_level": 0}

    def end_contract(self, contract_id: str, ends_on: str, final_reading: int) -> Row:
        row = self.get("contracts", contract_id)
        row.update(ends_on=self.iso(ends_on), final_reading=final_reading, status="ended")
        return {"contract_id": contract_id, "status": "ended", "ends_on": ends_on}

    def create_invoice(self, contract_id: str, amount: float, text: str) -> Row:
        contract = self.get("contracts", contract_id)
        values = {"contract_id": contract_id, "amount": _positive(amount), "text": text}
        row = self.add("invoices", customer_id=contract["customer_id"], **values, status="open")
        return {"invoice_id": row["invoice_id"], "status": "open"}

    def pay_refund(self, contract_id: str, amount: float, iban: str) -> Row:
        self.get("contracts", contract_id)
        self.pick("customers", iban=iban)
        values = {"contract_id": contract_id, "amount": _positive(amount), "iban": iban}
        return {"refund_id": self.add("refunds", **values)["refund_id"], "status": "ordered"}

    def set_postal_address(self, customer_id: str, address: str) -> Row:
        self.get("customers", customer_id)["postal_address"] = address
        return {"customer_id": customer_id, "postal_address": address}


def _positive(amount: float) -> float:
    if isinstance(amount, bool) or not isinstance(amount, int | float) or amount <= 0:
        raise ToolError(f"invalid amount {amount!r}")
    return amount


BASE = Energy()


def _pool(table: str, number: int) -> list[Row]:
    """Return the rows of the customers for this number: tests have other customers."""
    rows = list(BASE.db[table].values())
    return [row for row in rows if (int(row[_CUSTOMER][-4:]) % 3 == 0) == (number >= 40)]


def _named(customer: Row) -> Facts:
    """Return the inputs that identify a customer: the town only if there are namesakes."""
    namesakes = len(BASE.where("customers", name=customer["name"])) > 1
    return {"customer": customer["name"], **({"town": customer["town"]} if namesakes else {})}


def _who(facts: Facts) -> str:
    return str(facts["customer"]) + (f" from {facts['town']}" if "town" in facts else "")


def _customer(world: Energy, facts: Facts) -> Row:
    """Return the customer of the facts (for traps)."""
    return world.pick("customers", name=facts["customer"], **optional(facts, "town"))


def _find_customer(world: Energy, facts: Facts, variant: int) -> Row:
    """Find the customer with this exact name, and in this town if it is given."""
    if variant % 9 == 4:
        world.stumble("get_customer", customer_id=facts["customer"])
    name = facts["customer"]
    searched = name.split()[-1] if variant % 5 == 2 else name
    rows = world.call("find_customers", name=searched)
    return only(rows, name=name, **optional(facts, "town"))


# Change the monthly instalment of a contract, within the limits of its plan.
def _instalment_facts(number: int) -> Facts:
    rng = random.Random(f"change_instalment/{number}")
    while True:
        row = rng.choice([row for row in _pool("contracts", number) if row["status"] == "active"])
        plan = BASE.get_instalment_plan(row["contract_id"])
        if plan["state"] == "open":
            break
    facts = _named(BASE.get("customers", row[_CUSTOMER])) | {"commodity": row["commodity"]}
    key = {_CUSTOMER: row[_CUSTOMER], "commodity": row["commodity"], "status": "active"}
    if len(BASE.where("contracts", **key)) > 1 or rng.random() < 0.15:
        facts["street"] = row["street"]
    amounts = range(plan["lowest"], plan["highest"] + 1)
    amount = rng.choice([amount for amount in amounts if amount != plan["amount"]])
    if rng.random() < 0.2:
        amount = rng.choice([plan["lowest"], plan["highest"]])
    months = [f"2027-{month:02}-01" for month in range(4, 10)]
    starts = rng.choice([month for month in months if month >= plan["next_change"]])
    return {**facts, "amount": amount, "starts_on": starts}


def _solve_instalment(world: Energy, facts: Facts, variant: int) -> None:
    found = _find_customer(world, facts, variant)
    if variant % 6 == 5:
        world.call("get_customer", customer_id=found[_CUSTOMER])
    rows = world.call("list_contracts", customer_id=found[_CUSTOMER])
    wanted = {"commodity": facts["commodity"], **optional(facts, "street")}
    contract = only(rows, status="active", **wanted)
    if variant % 7 == 3:
        world.call("get_contract", contract_id=contract["contract_id"])
    plan = world.call("get_instalment_plan", contract_id=contract["contract_id"])
    need(plan["state"] == "open", "the plan is under review")
    amount = amount_of(facts, "amount")
    need(amount_of(plan, "lowest") <= amount <= amount_of(plan, "highest"), "outside the limits")
    need(plan["next_change"] <= facts["starts_on"], "too early for a change")
    change = {"contract_id": contract["contract_id"], "amount": amount}
    if variant % 10 == 8:
        world.stumble("set_instalment", **change, starts_on=facts["starts_on"][:7])
    world.call("set_instalment", **change, starts_on=facts["starts_on"])


INSTALMENT_WORDS = (
    "{who} would like to pay {amount} a month for {commodity}{place} from {starts_on}.",
    "Please set the {commodity} instalment of {who}{place} to {amount}, starting {starts_on}.",
    "Instalment change: {who}, {commodity}{place}, {amount} from {starts_on}.",
    "From {starts_on} the monthly {commodity} payment of {who}{place} should be {amount}.",
)
INSTALMENT = Kind(
    "change_instalment",
    Energy,
    _instalment_facts,
    _solve_instalment,
    INSTALMENT_WORDS,
    lambda f: {"who": _who(f), "place": f" at {f['street']}" if "street" in f else ""},
)


def _plan(world: Energy, facts: Facts) -> Row:
    key = {_CUSTOMER: _customer(world, facts)[_CUSTOMER], "commodity": facts["commodity"]}
    contract = world.pick("contracts", **key, status="active", **optional(facts, "street"))
    return world.get_instalment_plan(contract["contract_id"])


def _namesake(world: Energy, facts: Facts) -> None:
    """Add a customer of the same name in another town, with the same kind of contract."""
    customer, plan = _customer(world, facts), _plan(world, facts)
    contract = world.get("contracts", plan["contract_id"])
    town = next(town for town in TOWNS if town != customer["town"])
    values = {**customer, "town": town, "number": "27-100001", "email": "second@post.example"}
    values |= {"iban": None, "postal_address": f"{contract['street']}, {town}"}
    del values[_CUSTOMER]
    key = world.add("customers", **values)[_CUSTOMER]
    copied = {name: value for name, value in contract.items() if name != "contract_id"}
    added = world.add("contracts", **{**copied, _CUSTOMER: key})["contract_id"]
    copied = {name: value for name, value in plan.items() if name != "plan_id"}
    world.add("plans", **{**copied, "contract_id": added})


INSTALMENT.trap(
    "below the lowest instalment",
    differ=lambda f: {"amount": _plan(BASE, f)["lowest"] - 1},
)
INSTALMENT.trap(
    "plan under review",
    lambda w, f: _plan(w, f).update(state="under_review"),
)
INSTALMENT.trap(
    "before the next possible change",
    lambda w, f: _plan(w, f).update(next_change=_later(f["starts_on"], 31)),
)
INSTALMENT.trap("two customers of this name", _namesake, where=lambda f: "town" not in f)


# Book a technician for a meter into a free slot of its district, and confirm it to the customer.
def _visit_facts(number: int) -> Facts:
    rng = random.Random(f"book_meter_visit/{number}")
    meters = [row for row in _pool("meters", number) if row["status"] == "installed"]
    meter = rng.choice([row for row in meters if row["visit_planned"] is None])
    key = {"district": meter["district"], "commodity": meter["commodity"]}
    slot = rng.choice([row for row in BASE.where("slots", **key) if row["free"] > 0])
    account = BASE.get("customers", meter[_CUSTOMER])["number"]
    facts = {"account": account, "serial": meter["serial"], "day": slot["day"]}
    facts["part"] = slot["part"]
    if rng.random() < 0.35:
        facts["note"] = rng.choice(["Ring twice", "Meter in the cellar", "Call before arrival"])
    return facts


def _solve_visit(world: Energy, facts: Facts, variant: int) -> None:
    if variant % 8 == 5:
        world.stumble("find_customer_by_number", number=facts["account"].replace("-", ""))
    customer = world.call("find_customer_by_number", number=facts["account"])
    if variant % 6 == 2:
        world.call("list_contracts", customer_id=customer[_CUSTOMER])
    rows = world.call("list_meters", customer_id=customer[_CUSTOMER])
    found = only(rows, serial=facts["serial"])
    if variant % 7 == 1:  # looks at all the meters
        records = [world.call("get_meter", meter_id=row["meter_id"]) for row in rows]
        meter = only(records, meter_id=found["meter_id"])
    else:
        meter = world.call("get_meter", meter_id=found["meter_id"])
    need(meter["status"] == "installed", "the meter is not installed any more")
    need(meter["visit_planned"] is None, "a visit is planned already")
    if variant % 9 == 3:
        world.stumble("list_slots", district=customer["town"], day=facts["day"])
    slots = world.call("list_slots", district=meter["district"], day=facts["day"])
    slot = only(slots, part=facts["part"], commodity=meter["commodity"])
    need(amount_of(slot, "free") > 0, "the slot is full")
    visit = {"meter_id": meter["meter_id"], **optional(facts, "note")}
    if variant % 10 == 6:
        world.stumble("book_visit", **visit, slot_id=f"{facts['day']} {facts['part']}")
    booked = world.call("book_visit", **visit, slot_id=slot["slot_id"])
    world.call("confirm_visit", visit_id=booked["visit_id"], channel=customer["contact"])


VISIT_WORDS = (
    "Book a technician for meter {serial} of account {account} on {day}, {part}.{noted}",
    "Account {account}: meter {serial} needs a visit on {day} in the {part}; confirm it.{noted}",
    "Meter visit, {day} {part}, account {account}, serial {serial}.{noted}",
    "Please send somebody to look at meter {serial} ({account}) on the {part} of {day}.{noted}",
)
VISIT = Kind(
    "book_meter_visit",
    Energy,
    _visit_facts,
    _solve_visit,
    VISIT_WORDS,
    lambda f: {"noted": f" Note: {f['note']}." if "note" in f else ""},
)


def _meter(world: Energy, serial: str) -> Row:
    return world.pick("meters", serial=serial)


def _fill_slot(world: Energy, facts: Facts) -> None:
    meter = _meter(world, facts["serial"])
    key = {"district": meter["district"], "commodity": meter["commodity"]}
    world.pick("slots", **key, day=facts["day"], part=facts["part"])["free"] = 0


def _other_account(facts: Facts) -> Facts:
    """Return the account of another customer in the same district."""
    meter = _meter(BASE, facts["serial"])
    rows = BASE.where("meters", district=meter["district"], status="installed")
    other = next(row for row in rows if row[_CUSTOMER] != meter[_CUSTOMER])
    return {"account": BASE.get("customers", other[_CUSTOMER])["number"]}


VISIT.trap("meter of another customer", differ=_other_account)
VISIT.trap("slot is full", _fill_slot)
VISIT.trap("meter removed", lambda w, f: _meter(w, f["serial"]).update(status="removed"))
VISIT.trap(
    "visit planned already",
    lambda w, f: _meter(w, f["serial"]).update(visit_planned="2027-04-14"),
)


# Enter the readings that a customer sent for some meters, if all of them are plausible.
def _latest(readings: list[Row]) -> Row:
    need(readings, "no earlier reading")
    return max(readings, key=lambda row: str(row["read_on"]))


def _readings_facts(number: int) -> Facts:
    rng = random.Random(f"record_readings/{number}")
    customer = rng.choice(_pool("customers", number))
    meters = BASE.where("meters", customer_id=customer[_CUSTOMER], status="installed")
    chosen = rng.sample(meters, rng.choice([len(meters), len(meters), rng.randint(1, len(meters))]))
    readings = []
    for meter in chosen:
        value = _latest(BASE.list_readings(meter["meter_id"]))["value"]
        values = [value + rng.randrange(20, 700), rng.randint(value, meter["expected_max"])]
        readings.append({"serial": meter["serial"], "value": rng.choice(values)})
    facts = {"email": customer["email"], "readings": readings}
    facts["read_on"] = _later("2027-03-20", rng.randrange(0, 25))
    if rng.random() < 0.4:
        facts["source"] = rng.choice(["phone", "photo", "letter"])
    return facts


def _solve_readings(world: Energy, facts: Facts, variant: int) -> None:
    entries = facts["readings"]
    serials = [entry["serial"] for entry in entries]
    need(serials and len(set(serials)) == len(serials), "a meter listed twice, or none")
    if variant % 9 == 7:
        world.stumble("get_meter", meter_id=serials[0])
    customer = world.call("find_customer_by_email", email=facts["email"])
    if variant % 6 == 4:
        world.call("get_customer", customer_id=customer[_CUSTOMER])
    rows = world.call("list_meters", customer_id=customer[_CUSTOMER])
    keys = [only(rows, serial=serial)["meter_id"] for serial in serials]
    meters, latest = [], []
    if variant % 4 == 1:  # first all meters, then their readings
        meters = [world.call("get_meter", meter_id=key) for key in keys]
        latest = [_latest(world.call("list_readings", meter_id=key)) for key in keys]
    for key in keys if variant % 4 != 1 else []:
        if variant % 4 == 2:
            latest.append(_latest(world.call("list_readings", meter_id=key)))
        meters.append(world.call("get_meter", meter_id=key))
        if variant % 4 != 2:
            latest.append(_latest(world.call("list_readings", meter_id=key)))
    for entry, meter, last in zip(entries, meters, latest, strict=True):
        need(meter["status"] == "installed", "the meter is not installed any more")
        need(last["read_on"] < facts["read_on"], "there is a later reading")
        value = amount_of(entry, "value")
        need(amount_of(last, "value") <= value, "lower than the last reading")
        need(value <= amount_of(meter, "expected_max"), "higher than expected")
    given = {"read_on": facts["read_on"], **optional(facts, "source")}
    if variant % 10 == 3:
        wrong = f"{entries[0]['value']} kWh"
        world.stumble("add_reading", meter_id=keys[0], value=wrong, **given)
    for entry, key in zip(entries, keys, strict=True):
        world.call("add_reading", meter_id=key, value=entry["value"], **given)


READINGS_WORDS = (
    "{email} sent meter readings of {read_on}: {listed}.{by}",
    "Please enter these readings for {email}, read on {read_on}: {listed}.{by}",
    "Readings from {read_on}, customer {email}: {listed}.{by}",
    "Record {listed} for {email} as of {read_on}.{by}",
)
READINGS = Kind(
    "record_readings",
    Energy,
    _readings_facts,
    _solve_readings,
    READINGS_WORDS,
    lambda f: {
        "listed": "; ".join(f"{row['serial']} at {row['value']}" for row in f["readings"]),
        "by": f" Received by {f['source']}." if "source" in f else "",
    },
)


def _last_meter(world: Energy, facts: Facts) -> Row:
    return _meter(world, facts["readings"][-1]["serial"])


def _too_low(facts: Facts) -> Facts:
    last = facts["readings"][-1]
    value = _latest(BASE.list_readings(_last_meter(BASE, facts)["meter_id"]))["value"]
    return {"readings": [*facts["readings"][:-1], {**last, "value": value - 12}]}


def _read_since(world: Energy, facts: Facts) -> None:
    """Add a reading of a later day, which is not higher than the new one."""
    key = _last_meter(world, facts)["meter_id"]
    last, new = _latest(world.list_readings(key))["value"], facts["readings"][-1]["value"]
    values = {"value": (last + new) // 2, "kind": "visit"}
    world.add("readings", meter_id=key, read_on=_later(facts["read_on"], 3), **values)


READINGS.trap("lower than the last reading", differ=_too_low)
READINGS.trap("one meter removed", lambda w, f: _last_meter(w, f).update(status="removed"))
READINGS.trap("a later reading exists", _read_since)
READINGS.trap(
    "one meter twice",
    None,
    lambda f: {"readings": [*f["readings"], f["readings"][0]]},
    lambda f: len(f["readings"]) > 1,
)


# Assign a bank payment to the open invoice of its amount; stop the reminders if there were any.
def _payment_facts(number: int) -> Facts:
    rng = random.Random(f"assign_payment/{number}")
    invoices = [row for row in _pool("invoices", number) if row["status"] == "open"]
    chosen: list[Row] = []
    for invoice in invoices:
        iban = BASE.get("customers", invoice[_CUSTOMER])["iban"]
        key = {"iban": iban, "amount": invoice["amount"], "state": "unassigned"}
        chosen += BASE.where("payments", **key)
    random.Random("assign_payment").shuffle(chosen)
    payment = chosen[number % 40]
    facts = optional(payment, "received_on", "payer", "amount")
    if rng.random() < 0.3:
        facts["note"] = rng.choice(["Checked by phone", "Second attempt", "Customer sent proof"])
    return facts


def _solve_payment(world: Energy, facts: Facts, variant: int) -> None:
    if variant % 8 == 4:
        world.stumble("list_bank_payments", day=facts["received_on"].replace("-", "."))
    rows = world.call("list_bank_payments", day=facts["received_on"])
    found = only(rows, payer=facts["payer"], amount=facts["amount"], state="unassigned")
    payment = world.call("get_payment", payment_id=found["payment_id"])
    if variant % 6 == 1:
        world.call("find_customers", name=facts["payer"].split()[-1])
    customer = world.call("find_customer_by_iban", iban=payment["iban"])
    if variant % 5 == 3:
        world.call("list_contracts", customer_id=customer[_CUSTOMER])
    invoices = world.call("list_invoices", customer_id=customer[_CUSTOMER])
    match = only(invoices, amount=facts["amount"], status="open")
    if variant % 7 == 2:  # reads all that are open
        keys = [row["invoice_id"] for row in invoices if row["status"] == "open"]
        records = [world.call("get_invoice", invoice_id=key) for key in keys]
        invoice = only(records, invoice_id=match["invoice_id"])
    else:
        invoice = world.call("get_invoice", invoice_id=match["invoice_id"])
    pair = {"invoice_id": invoice["invoice_id"], **optional(facts, "note")}
    if variant % 10 == 9:
        world.stumble("assign_payment", **pair, payment_id=payment["iban"])
    world.call("assign_payment", **pair, payment_id=payment["payment_id"])
    if amount_of(invoice, "reminder_level") > 0:
        reason = f"Paid by {facts['payer']} on {facts['received_on']}"
        world.call("stop_reminders", invoice_id=invoice["invoice_id"], reason=reason)


PAYMENT_WORDS = (
    "{payer} paid {amount} on {received_on}; assign it to the invoice and stop reminders.{noted}",
    "Please match the bank payment of {amount} from {payer}, received {received_on}.{noted}",
    "Unassigned payment: {received_on}, {payer}, {amount}. Book it on the open invoice.{noted}",
    "The {amount} that {payer} sent on {received_on} should settle their invoice.{noted}",
)
PAYMENT = Kind(
    "assign_payment",
    Energy,
    _payment_facts,
    _solve_payment,
    PAYMENT_WORDS,
    lambda f: {"noted": f" Note: {f['note']}." if "note" in f else ""},
)


def _paid(world: Energy, facts: Facts) -> tuple[Row, Row]:
    """Return the bank payment of the facts, and the open invoice of its amount."""
    key = optional(facts, "received_on", "payer", "amount")
    payment = world.pick("payments", **key, state="unassigned")
    customer = world.pick("customers", iban=payment["iban"])[_CUSTOMER]
    key = {_CUSTOMER: customer, "amount": facts["amount"]}
    return payment, world.pick("invoices", **key, status="open")


def _second_invoice(world: Energy, facts: Facts) -> None:
    row = _paid(world, facts)[1]
    values = {key: value for key, value in row.items() if key != "invoice_id"}
    world.add("invoices", **{**values, "due": _later(row["due"], 30)})


def _dearer(world: Energy, facts: Facts) -> None:
    row = _paid(world, facts)[1]
    row["amount"] = round(row["amount"] + 4.5, 2)


PAYMENT.trap("two open invoices of this amount", _second_invoice)
PAYMENT.trap("amount fits no invoice", _dearer)
PAYMENT.trap(
    "payment assigned already",
    lambda w, f: _paid(w, f)[0].update(state="assigned", invoice_id="IV-0001"),
)
PAYMENT.trap(
    "invoice with the collectors",
    lambda w, f: _paid(w, f)[1].update(status="with_collectors"),
)


# End a contract when the customer moves out: bill or refund what is left, note the new address.
def _balance(contract: Row, tariff: Row, facts: Facts) -> float:
    """Return what the customer still owes; negative if the advance payments exceed the costs."""
    usage = amount_of(facts, "final_reading") - amount_of(contract, "billed_reading")
    days = _days(contract["billed_to"], facts["moved_out"])
    cost = usage * amount_of(tariff, "unit_price") + days * amount_of(tariff, "standing_per_day")
    return round(cost - amount_of(contract, "advance_paid"), 2)


def _close_facts(number: int) -> Facts:
    rng = random.Random(f"close_contract/{number}")
    while True:
        rows = [row for row in _pool("contracts", number) if row["status"] == "active"]
        row = rng.choice([row for row in rows if not row["disputed"]])
        customer = BASE.get("customers", row[_CUSTOMER])
        facts = _named(customer) | {"commodity": row["commodity"], "street": row["street"]}
        facts["moved_out"] = _later("2027-03-12", rng.randrange(0, 45))
        value = _latest(BASE.list_readings(row["meter_id"]))["value"]
        facts["final_reading"] = value + rng.randrange(15, 1200)
        balance = _balance(row, BASE.get("tariffs", row["tariff_id"]), facts)
        if balance > 0 or (balance < 0 and customer["iban"]):
            break
    if rng.random() < 0.4:
        town = rng.choice([town for town in TOWNS if town != customer["town"]])
        facts["new_address"] = f"{rng.choice(STREETS)} {rng.randint(1, 80)}, {town}"
    return facts


def _solve_close(world: Energy, facts: Facts, variant: int) -> None:
    found = _find_customer(world, facts, variant)
    if variant % 3 != 1:
        customer = world.call("get_customer", customer_id=found[_CUSTOMER])
    rows = world.call("list_contracts", customer_id=found[_CUSTOMER])
    wanted = {"commodity": facts["commodity"], "street": facts["street"]}
    chosen = only(rows, status="active", **wanted)
    contract = world.call("get_contract", contract_id=chosen["contract_id"])
    need(contract["disputed"] is False, "the contract is under dispute")
    need(contract["billed_to"] < facts["moved_out"], "billed beyond that day")
    reading = amount_of(facts, "final_reading")
    need(amount_of(contract, "billed_reading") <= reading, "lower than the last bill")
    if variant % 7 == 5:
        world.call("list_readings", meter_id=contract["meter_id"])
    tariff = world.call("get_tariff", tariff_id=contract["tariff_id"])
    if variant % 3 == 1:
        customer = world.call("get_customer", customer_id=found[_CUSTOMER])
    balance = _balance(contract, tariff, facts)
    need(balance >= 0 or customer["iban"], "no bank account for the refund")
    key = {"contract_id": contract["contract_id"]}
    end = {**key, "final_reading": reading}
    if variant % 10 == 7:
        world.stumble("end_contract", **end, ends_on=facts["moved_out"].replace("-", "/"))
    world.call("end_contract", **end, ends_on=facts["moved_out"])
    if balance > 0:
        text = f"Final bill {facts['commodity']}, {facts['street']}, until {facts['moved_out']}"
        world.call("create_invoice", **key, amount=balance, text=text)
    if balance < 0:
        world.call("pay_refund", **key, amount=-balance, iban=customer["iban"])
    if "new_address" in facts:
        address = facts["new_address"]
        world.call("set_postal_address", customer_id=customer[_CUSTOMER], address=address)


CLOSE_WORDS = (
    (
        "{who} moved out of {street} on {moved_out}, {commodity} reading {final_reading}. End the"
        " contract and bill or refund the rest.{moved}"
    ),
    (
        "Please close the {commodity} contract of {who} at {street} as of {moved_out} with final"
        " reading {final_reading}.{moved}"
    ),
    (
        "Move-out: {who}, {street}, {commodity}, {moved_out}, reading {final_reading}; settle the"
        " account.{moved}"
    ),
    (
        "End {commodity} at {street} for {who} on {moved_out} (meter at {final_reading}) and settle"
        " what is left.{moved}"
    ),
)
CLOSE = Kind(
    "close_contract",
    Energy,
    _close_facts,
    _solve_close,
    CLOSE_WORDS,
    lambda f: {
        "who": _who(f),
        "moved": f" New address: {f['new_address']}." if "new_address" in f else "",
    },
)


def _contract(world: Energy, facts: Facts) -> Row:
    key = {_CUSTOMER: _customer(world, facts)[_CUSTOMER], "commodity": facts["commodity"]}
    return world.pick("contracts", **key, street=facts["street"], status="active")


def _refunded(facts: Facts) -> bool:
    contract = _contract(BASE, facts)
    return _balance(contract, BASE.get("tariffs", contract["tariff_id"]), facts) < 0


CLOSE.trap(
    "final reading below the last bill",
    differ=lambda f: {"final_reading": _contract(BASE, f)["billed_reading"] - 7},
)
CLOSE.trap(
    "no bank account for the refund",
    lambda w, f: _customer(w, f).update(iban=None),
    where=_refunded,
)
CLOSE.trap("contract under dispute", lambda w, f: _contract(w, f).update(disputed=True))
CLOSE.trap("contract ended already", lambda w, f: _contract(w, f).update(status="ended"))

KINDS = [INSTALMENT, VISIT, READINGS, PAYMENT, CLOSE]
