"""A letting agency: buildings, tenants, leases, parking, repairs, appliances and deposits."""

import random
from datetime import date, timedelta
from typing import Any

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

FIRST = "Amy,Amir,Ben,Benedikt,Carla,Carl,Dina,Eli,Elisa,Finn,Gwen,Ines,Mary Jo,Jo,Omar".split(",")
LAST = "Holm Holmes Park Parker Reyes Ward Wardell Novak Okoye Lang Langley Costa Duarte".split()
BUILDINGS = [  # name, district
    ("Alder Court", "north"),
    ("Alder Court North", "north"),
    ("Birch House", "centre"),
    ("Cedar Row", "south"),
    ("Elm Yard", "harbourside"),
    ("Elm Yard Lofts", "harbourside"),
    ("Hazel Terrace", "south"),
    ("Juniper Mews", "centre"),
    ("Linden Place", "north"),
    ("Rowan Gardens", "south"),
]
CONTRACTORS = [  # name, trade
    ("Pipeworks", "plumbing"),
    ("Pipeworks South", "plumbing"),
    ("Brook & Sons", "plumbing"),
    ("Brightline", "electrics"),
    ("Volta", "electrics"),
    ("Warmhouse", "heating"),
    ("Kessler Boilers", "heating"),
    ("Joinery Nine", "joinery"),
    ("Oak & Plane", "joinery"),
    ("Latchkey", "locks"),
    ("Northern Locks", "locks"),
]
DEFECTS = [  # code, title, trade, who pays, days within which it is to be repaired
    ("PL-01", "Dripping tap", "plumbing", "landlord", 14),
    ("PL-02", "Blocked drain", "plumbing", "landlord", 3),
    ("PL-03", "Burst pipe", "plumbing", "landlord", 1),
    ("PL-04", "Shower head limescale", "plumbing", "tenant", 30),
    ("EL-01", "Dead socket", "electrics", "landlord", 7),
    ("EL-02", "No power in the flat", "electrics", "landlord", 1),
    ("EL-03", "Light bulb", "electrics", "tenant", 30),
    ("EL-04", "Door bell silent", "electrics", "landlord", 21),
    ("HE-01", "No heating", "heating", "landlord", 2),
    ("HE-02", "Cold radiator", "heating", "landlord", 10),
    ("HE-03", "Loss of boiler pressure", "heating", "landlord", 5),
    ("JO-01", "Window does not close", "joinery", "landlord", 7),
    ("JO-02", "Loose skirting board", "joinery", "landlord", 28),
    ("JO-03", "Scratched worktop", "joinery", "tenant", 30),
    ("LO-01", "Flat door lock stiff", "locks", "landlord", 5),
    ("LO-02", "Lost key", "locks", "tenant", 2),
    ("LO-03", "Letter box broken", "locks", "landlord", 21),
]
ACCESS = ["Key with the concierge", "Call before", "After 16:00 only", "Dog in the flat"]
APPLIANCES = {  # the least price
    "fridge": 260,
    "freezer": 235,
    "washing machine": 340,
    "cooker": 390,
    "dishwasher": 310,
}
BRANDS = ["Arka", "Borealis", "Calo", "Dantex", "Ehrle", "Fjord", "Gamma", "Holt"]
WIDTHS = [45, 50, 55, 60]
PRICES: list[Row] = [
    {"item": "wall paint", "unit": "room", "price": 118},
    {"item": "carpet", "unit": "m2", "price": 34.5},
    {"item": "carpet cleaning", "unit": "room", "price": 46},
    {"item": "door handle", "unit": "piece", "price": 27.4},
    {"item": "door", "unit": "piece", "price": 215},
    {"item": "wash basin", "unit": "piece", "price": 164.9},
    {"item": "window pane", "unit": "piece", "price": 139},
    {"item": "blind", "unit": "piece", "price": 58.25},
    {"item": "key set", "unit": "set", "price": 72},
    {"item": "tile", "unit": "piece", "price": 9.8},
]
CURRENT = ("active", "notice_given")


def _later(day: str, days: int) -> str:
    return (date.fromisoformat(day) + timedelta(days=days)).isoformat()


class Homes(World):
    """The agency in September 2027."""

    NAME = "homes"
    READS = words(
        "find_tenants find_tenant_by_email find_tenant_by_phone get_tenant find_buildings "
        "get_building list_units get_unit list_leases get_lease list_spaces get_space get_defect "
        "list_framework get_contractor list_orders list_inventory list_models list_inspections "
        "list_prices list_ledger"
    )
    WRITES = words(
        "change_debit_day assign_space add_monthly_charge create_order order_appliance "
        "book_collection retain_deposit refund_deposit"
    )
    TABLES = tables(
        "buildings building_id BD, units unit_id UN, tenants tenant_id TN, leases lease_id LS, "
        "spaces space_id SP, defects code DF, contractors contractor_id CO, framework row_id FR, "
        "orders order_id WO, inventory item_id IT, models model_id MO, purchases purchase_id PU, "
        "collections collection_id CL, inspections inspection_id IS, ledger entry_id LE, "
        "charges charge_id CH, retained retained_id RE, refunds refund_id RF"
    )

    def __init__(self) -> None:
        super().__init__()
        rng = random.Random(909)
        self._add_catalogues(rng)
        for name, district in BUILDINGS:
            self._add_building(rng, name, district)
        self._names = [f"{first} {last}" for first in FIRST for last in LAST]
        rng.shuffle(self._names)
        for unit in list(self.db["units"].values()):
            self._let(rng, unit)
        for tenant in rng.sample(list(self.db["tenants"].values()), 60):
            unit = rng.choice(list(self.db["units"].values()))
            start = _later("2019-01-01", rng.randrange(0, 700))
            self.add_lease(rng, tenant["tenant_id"], unit["unit_id"], start, "ended")
        for row in list(self.db["leases"].values()):
            self._add_accounts(rng, row)

    def _add_catalogues(self, rng: random.Random) -> None:
        """Add the contractors, the defects and the appliances on sale."""
        for name, trade in CONTRACTORS:
            rating = round(rng.uniform(3, 5), 1)
            phone = f"020 555 {rng.randrange(1000, 9999)}"
            self.add("contractors", name=name, trade=trade, phone=phone, rating=rating)
        for code, title, trade, payer, days in DEFECTS:
            values = {"title": title, "trade": trade, "paid_by": payer, "within_days": days}
            self.add("defects", code=code, **values)
        for kind, base in APPLIANCES.items():
            widths = rng.sample(WIDTHS * 2, len(BRANDS))
            extras = rng.sample(range(0, 160, 2), len(BRANDS))
            for brand, width, extra in zip(BRANDS, widths, extras, strict=True):
                price = base + 6 * (60 - width) + extra + rng.choice([0, 0.5, 0.9])
                values = {"name": f"{brand} {rng.randrange(100, 999)}", "width_cm": width}
                values |= {"energy_class": rng.choice("ABCD"), "stock": rng.randint(1, 12)}
                self.add("models", kind=kind, **values, price=price)
            for width in WIDTHS:  # of two models as wide as each other, one may be sold out
                if rng.random() < 0.5:
                    rng.choice(self.where("models", kind=kind, width_cm=width))["stock"] = 0

    def _add_building(self, rng: random.Random, name: str, district: str) -> None:
        """Add a building with its flats, parking spaces and contractors."""
        row = self.add("buildings", name=name, district=district, lift=rng.random() < 0.6)
        key = row["building_id"]
        for n in range(14):
            number = f"{n // 4 + 1}{'ABCD'[n % 4]}"
            unit = self.add("units", building_id=key, number=number, rooms=rng.randint(1, 5))
            self._furnish(rng, unit["unit_id"])
        for n in range(rng.randint(11, 18)):
            kind = rng.choice(["open", "open", "garage", "carport"])
            monthly = {"open": 35, "garage": 82.5, "carport": 54}[kind] + rng.choice([0, 4, 7.5])
            taken = "LS-0001" if rng.random() < 0.4 else None
            values: Row = {"kind": kind, "monthly": monthly, "lease_id": taken}
            values["free_from"] = _later("2027-07-01", rng.randrange(0, 130))
            self.add("spaces", building_id=key, label=f"P{n + 1:02}", **values)
        for trade in sorted({trade for _, trade in CONTRACTORS}):
            firms = self.where("contractors", trade=trade)
            rng.shuffle(firms)
            if rng.random() < 0.5:
                self.add_framework(key, firms[1], "2024-01-01", "ended")
            if rng.random() < 0.93:
                self.add_framework(key, firms[0], "2026-01-01", "current")

    def add_framework(self, building_id: str, firm: Row, since: str, status: str) -> Row:
        values = {**optional(firm, "contractor_id", "trade"), "since": since, "status": status}
        return self.add("framework", building_id=building_id, **values)

    def _furnish(self, rng: random.Random, unit_id: str) -> None:
        for kind in rng.sample(list(APPLIANCES), rng.randint(2, 4)):
            width = rng.choice(WIDTHS)
            if rng.random() < 0.3:
                self.add_item(rng, unit_id, kind, width, "2014-05-01", "retired")
            bought = _later("2019-01-01", rng.randrange(0, 3100))
            self.add_item(rng, unit_id, kind, width, bought, "in_use")

    def add_item(
        self, rng: random.Random, unit_id: str, kind: str, width: int, bought: str, status: str
    ) -> Row:
        values: Row = {"kind": kind, "niche_cm": width, "bought": bought, "status": status}
        values["warranty_until"] = _later(bought, rng.choice([730, 730, 1095]))
        values["owner"] = "tenant" if rng.random() < 0.12 else "landlord"
        return self.add("inventory", unit_id=unit_id, **values)

    def _let(self, rng: random.Random, unit: Row) -> None:
        """Let a flat: someone moved out in summer, or lives there, or both one after another."""
        key, building = unit["unit_id"], self.get("buildings", unit["building_id"])["name"]
        left = rng.random() < 0.52
        if left:
            tenant = self._add_tenant(rng, building)
            start = _later("2021-01-01", rng.randrange(0, 1500))
            self.add_lease(rng, tenant["tenant_id"], key, start, "moved_out")
            if rng.random() < 0.15:  # moved to another flat of the agency
                other = rng.choice(list(self.db["units"].values()))
                start = _later("2027-06-01", rng.randrange(0, 60))
                self.add_lease(rng, tenant["tenant_id"], other["unit_id"], start, "active")
                home = self.get("buildings", other["building_id"])["name"]
                if not self.where("tenants", name=tenant["name"], building=home):
                    tenant["building"] = home
        if not left or rng.random() < 0.4:
            tenant = self._add_tenant(rng, building)
            first, span = ("2027-07-15", 45) if left else ("2021-06-01", 2100)
            status = "active" if left or rng.random() < 0.8 else "notice_given"
            start = _later(first, rng.randrange(0, span))
            self.add_lease(rng, tenant["tenant_id"], key, start, status)
        for code in rng.sample([row[0] for row in DEFECTS], rng.randint(0, 4)):
            status = rng.choice(["done", "done", "cancelled", "open"])
            due = _later("2027-08-20", rng.randrange(0, 30))
            due = due if status == "open" else _later(due, -rng.randrange(60, 500))
            self.add("orders", unit_id=key, code=code, due=due, status=status)

    def _add_tenant(self, rng: random.Random, building: str) -> Row:
        known = list(self.db["tenants"].values())
        others = [row["name"] for row in known if row["building"] != building]
        here = [row["name"] for row in known if row["building"] == building]
        others = [name for name in others if name not in here]
        twice = len(others) > 20 and rng.random() < 0.2
        name = rng.choice(others) if twice else self._names[len(known) % len(self._names)]
        number = len(known)
        mail = f"{name.lower().replace(' ', '.')}{number}@post.example"
        row = self.add("tenants", name=name, building=building, email=mail)
        row.update(phone=f"07700 9{10000 + 53 * number}", contact=rng.choice(["sms", "email"]))
        if rng.random() < 0.2:
            row["note"] = rng.choice(["Works nights", "Speaks Portuguese", "Son has the keys"])
        return row

    def add_lease(
        self, rng: random.Random, tenant_id: str, unit_id: str, start: str, status: str
    ) -> Row:
        rent = rng.randrange(620, 1900, 15)
        payment = rng.choice(["direct_debit"] * 6 + ["transfer", "standing_order"])
        values: Row = {"tenant_id": tenant_id, "unit_id": unit_id, "start": start}
        values |= {"status": status, "rent": rent, "deposit": rent * rng.choice([2, 2, 3])}
        values |= {"deposit_status": "refunded" if status == "ended" else "held"}
        values |= {"payment": payment, "billed_until": rng.choice(["2027-09", "2027-10"])}
        if payment == "direct_debit":
            values["mandate"] = "valid" if rng.random() < 0.94 else "cancelled"
            values["debit_day"] = rng.choice([1, 5, 10, 15])
        if status in ("moved_out", "ended"):
            last = _later("2027-06-20", rng.randrange(0, 60))
            last = _later(start, 900) if status == "ended" else last
            values |= {"moved_out": last, "hold_until": _later(last, 42)}
        if status == "notice_given":
            values["ends"] = _later("2027-11-30", 31 * rng.randrange(0, 3))
        return self.add("leases", **values)

    def _add_accounts(self, rng: random.Random, lease: Row) -> None:
        """Add the ledger of a lease and its inspections."""
        key = lease["lease_id"]
        for n in range(rng.randint(2, 4)):
            due = _later(lease.get("moved_out", "2027-09-01"), -30 * n)
            self.add_entry(key, "Rent", due, lease["rent"], lease["rent"], "paid")
        for text in rng.sample(["Heating bill", "Water bill", "Late fee", "Lost key"], 2):
            amount = round(rng.uniform(18, 240), 2)
            status = rng.choice(["paid", "open", "open", "waived"])
            status = "paid" if lease["status"] == "ended" else status
            paid = amount if status == "paid" else rng.choice([0, 0, round(amount / 3, 2)])
            self.add_entry(key, text, "2027-08-15", amount, paid, status)
        self.add_inspection(rng, key, "move_in", lease["start"], "signed")
        if rng.random() < 0.4:
            self.add_inspection(rng, key, "interim", _later(lease["start"], 365), "signed")
        if "moved_out" in lease:
            if rng.random() < 0.3:
                self.add_inspection(rng, key, "move_out", _later(lease["moved_out"], -7), "draft")
            status = "signed" if rng.random() < 0.93 else "draft"
            self.add_inspection(rng, key, "move_out", lease["moved_out"], status)

    def add_entry(
        self, lease_id: str, text: str, due: str, amount: float, paid: float, status: str
    ) -> Row:
        values: Row = {"text": text, "due": due, "amount": amount, "paid": paid, "status": status}
        return self.add("ledger", lease_id=lease_id, **values)

    def add_inspection(
        self, rng: random.Random, lease_id: str, kind: str, day: str, status: str
    ) -> Row:
        items = [row["item"] for row in PRICES] + (["skylight"] if rng.random() < 0.1 else [])
        findings = []
        for item in rng.sample(items, rng.choice([0, 1, 2, 2, 3, 4])):
            cause = rng.choice(["wear", "damage"])
            finding: Row = {"item": item, "quantity": rng.randint(1, 4), "cause": cause}
            finding["disputed"] = cause == "damage" and rng.random() < 0.05
            findings.append(finding)
        values: Row = {"kind": kind, "day": day, "status": status, "findings": findings}
        return self.add("inspections", lease_id=lease_id, **values)

    # Read tools

    def find_tenants(self, name: str) -> list[Row]:
        return self.search("tenants", "name", name, "tenant_id", "name", "building")

    def find_tenant_by_email(self, email: str) -> Row:
        return self.pick("tenants", email=email)

    def find_tenant_by_phone(self, phone: str) -> Row:
        return self.pick("tenants", phone=phone)

    def get_tenant(self, tenant_id: str) -> Row:
        return self.get("tenants", tenant_id)

    def find_buildings(self, name: str) -> list[Row]:
        return self.search("buildings", "name", name, "building_id", "name")

    def get_building(self, building_id: str) -> Row:
        return self.get("buildings", building_id)

    def list_units(self, building_id: str) -> list[Row]:
        rows = self.where("units", building_id=self.get("buildings", building_id)["building_id"])
        return [optional(row, "unit_id", "number") for row in rows]

    def get_unit(self, unit_id: str) -> Row:
        return self.get("units", unit_id)

    def list_leases(self, tenant_id: str) -> list[Row]:
        rows = self.where("leases", tenant_id=self.get("tenants", tenant_id)["tenant_id"])
        return [optional(row, "lease_id", "unit_id", "status", "start") for row in rows]

    def get_lease(self, lease_id: str) -> Row:
        return self.get("leases", lease_id)

    def list_spaces(self, building_id: str) -> list[Row]:
        rows = self.where("spaces", building_id=self.get("buildings", building_id)["building_id"])
        return [optional(row, "space_id", "label", "kind") for row in rows]

    def get_space(self, space_id: str) -> Row:
        return self.get("spaces", space_id)

    def get_defect(self, code: str) -> Row:
        return self.get("defects", code)

    def list_framework(self, building_id: str) -> list[Row]:
        return self.where(
            "framework", building_id=self.get("buildings", building_id)["building_id"]
        )

    def get_contractor(self, contractor_id: str) -> Row:
        return self.get("contractors", contractor_id)

    def list_orders(self, unit_id: str) -> list[Row]:
        return self.where("orders", unit_id=self.get("units", unit_id)["unit_id"])

    def list_inventory(self, unit_id: str) -> list[Row]:
        return self.where("inventory", unit_id=self.get("units", unit_id)["unit_id"])

    def list_models(self, kind: str) -> list[Row]:
        if kind not in APPLIANCES:
            raise ToolError(f"unknown kind {kind!r}: use {', '.join(APPLIANCES)}")
        return self.where("models", kind=kind)

    def list_inspections(self, lease_id: str) -> list[Row]:
        return self.where("inspections", lease_id=self.get("leases", lease_id)["lease_id"])

    def list_prices(self) -> list[Row]:
        return PRICES

    def list_ledger(self, lease_id: str) -> list[Row]:
        return self.where("ledger", lease_id=self.get("leases", lease_id)["lease_id"])

    # Write tools

    @staticmethod
    def money(value: object) -> float:
        """Return an amount that is not negative, or refuse the call."""
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            raise ToolError(f"invalid amount {value!r}")
        return value

    def change_debit_day(self, lease_id: str, day: int, from_month: str) -> Row:
        row = self.get("leases", lease_id)
        if type(day) is not int or not 1 <= day <= 28:
            raise ToolError(f"invalid day {day!r}: use a number from 1 to 28")
        self.iso(f"{from_month}-01")
        row.update(debit_day=day, debit_day_from=from_month)
        return {"lease_id": lease_id, "debit_day": day, "from_month": from_month}

    def assign_space(
        self, space_id: str, lease_id: str, plate: str, start: str, remote: str = ""
    ) -> Row:
        row = self.get("spaces", space_id)
        self.get("leases", lease_id)
        row.update(lease_id=lease_id, plate=plate, since=self.iso(start), remote=remote)
        return {"space_id": space_id, "lease_id": lease_id}

    def add_monthly_charge(self, lease_id: str, amount: float, start: str, text: str) -> Row:
        self.get("leases", lease_id)
        values: Row = {"amount": self.money(amount), "start": self.iso(start), "text": text}
        return self.add("charges", lease_id=lease_id, **values)

    def create_order(
        self, unit_id: str, code: str, contractor_id: str, due: str, access: str = ""
    ) -> Row:
        self.get("units", unit_id)
        self.get("defects", code)
        self.get("contractors", contractor_id)
        values = {"code": code, "contractor_id": contractor_id, "due": self.iso(due)}
        row = self.add("orders", unit_id=unit_id, **values, status="open", access=access)
        return {"order_id": row["order_id"], "status": "open"}

    def order_appliance(self, model_id: str, replaces: str, price: float, deliver_on: str) -> Row:
        item = self.get("inventory", replaces)
        self.get("models", model_id)["stock"] -= 1
        item["status"] = "to_be_replaced"
        values: Row = {"price": self.money(price), "deliver_on": self.iso(deliver_on)}
        row = self.add("purchases", model_id=model_id, replaces=replaces, **values)
        return {"purchase_id": row["purchase_id"]}

    def book_collection(self, item_id: str, day: str) -> Row:
        self.get("inventory", item_id)
        return self.add("collections", item_id=item_id, day=self.iso(day))

    def retain_deposit(self, lease_id: str, damage: float, arrears: float) -> Row:
        self.get("leases", lease_id)
        values = {"damage": self.money(damage), "arrears": self.money(arrears)}
        return self.add("retained", lease_id=lease_id, **values)

    def refund_deposit(self, lease_id: str, amount: float, iban: str, day: str) -> Row:
        row = self.get("leases", lease_id)
        values: Row = {"amount": self.money(amount), "iban": iban, "day": self.iso(day)}
        row["deposit_status"] = "refunded"
        return self.add("refunds", lease_id=lease_id, **values)


BASE = Homes()


def _share(rows: list[Row], number: int) -> list[Row]:
    """Return the records that the recordings use, or the others for the tests."""
    return [row for n, row in enumerate(rows) if (n % 3 == 2) == (number >= 40)]


def _turn(rows: list[Row], number: int) -> Row:
    """Return the record whose turn it is: each once, in an order of chance, before one repeats."""
    order = random.Random(len(rows)).sample(rows, len(rows))
    return order[number % 40 % len(order)]


def _sole(tenant_id: str, *statuses: str) -> bool:
    """Tell whether a tenant has exactly one lease in these statuses."""
    rows = BASE.where("leases", tenant_id=tenant_id)
    return sum(row["status"] in statuses for row in rows) == 1


def _leases(number: int, *statuses: str) -> list[Row]:
    """Return the leases for recordings or tests that are their tenant's only ones of this state."""
    rows = [row for row in BASE.db["leases"].values() if row["status"] in statuses]
    return _share([row for row in rows if _sole(row["tenant_id"], *statuses)], number)


def _lease(world: Homes, statuses: tuple[str, ...], **tenant: Any) -> Row:
    """Return the lease of a tenant in one of these statuses (for traps)."""
    key = world.pick("tenants", **tenant)["tenant_id"]
    rows = world.where("leases", tenant_id=key)
    return next(row for row in rows if row["status"] in statuses)


# Change the day on which the rent is debited.
def _debit_facts(number: int) -> Facts:
    rng = random.Random(f"change_debit_day/{number}")
    leases = [row for row in _leases(number, "active") if row.get("mandate") == "valid"]
    lease = _turn(leases, number)
    tenant = BASE.get("tenants", lease["tenant_id"])
    facts: Facts = {"tenant": tenant["name"]}
    if len(BASE.where("tenants", name=tenant["name"])) > 1 or rng.random() < 0.1:
        facts["building"] = tenant["building"]
    days = [day for day in (1, 3, 5, 8, 10, 12, 15, 18, 20, 25, 28) if day != lease["debit_day"]]
    months = ["2027-10", "2027-11", "2027-12", "2028-01"]
    months = [month for month in months if month > lease["billed_until"]]
    return {**facts, "day": rng.choice(days), "from_month": rng.choice(months)}


def _solve_debit(world: Homes, facts: Facts, variant: int) -> None:
    name = facts["tenant"]
    searched = name.split()[-1] if variant % 5 == 2 else name
    rows = world.call("find_tenants", name=searched)
    found = only(rows, name=name, **optional(facts, "building"))
    if variant % 4 == 3:
        world.call("get_tenant", tenant_id=found["tenant_id"])
    if variant % 9 == 4:
        world.stumble("get_lease", lease_id=found["tenant_id"])
    leases = world.call("list_leases", tenant_id=found["tenant_id"])
    chosen = only(leases, status="active")
    if variant % 7 == 5:  # reads all of them
        records = [world.call("get_lease", lease_id=row["lease_id"]) for row in leases]
        lease = only(records, lease_id=chosen["lease_id"])
    else:
        lease = world.call("get_lease", lease_id=chosen["lease_id"])
    need(lease["payment"] == "direct_debit", "the rent is not debited")
    need(lease.get("mandate") == "valid", "no valid mandate")
    need(lease["billed_until"] < facts["from_month"], "the month is billed already")
    change = {"lease_id": lease["lease_id"], "from_month": facts["from_month"]}
    if variant % 10 == 6:
        world.stumble("change_debit_day", **change, day=str(facts["day"]))
    world.call("change_debit_day", **change, day=facts["day"])


DEBIT_WORDS = (
    "{who} would like the rent to be debited on day {day} of the month, from {from_month}.",
    "Please change the debit day of {who} to {day}, starting {from_month}.",
    "Debit day: {who}, new day {day}, first month {from_month}.",
    "From {from_month} on, debit the rent of {who} on the {day}. of each month.",
)
DEBIT = Kind(
    "change_debit_day",
    Homes,
    _debit_facts,
    _solve_debit,
    DEBIT_WORDS,
    lambda f: {"who": f["tenant"] + (f" ({f['building']})" if "building" in f else "")},
)


def _debited(world: Homes, facts: Facts) -> Row:
    tenants = world.where("tenants", name=facts["tenant"], **optional(facts, "building"))
    return _lease(world, ("active",), tenant_id=tenants[0]["tenant_id"])


def _is_namesake(facts: Facts) -> bool:
    """Tell whether more than one tenant of this name lives in a flat of the agency."""
    keys = [row["tenant_id"] for row in BASE.where("tenants", name=facts["tenant"])]
    return sum(bool(BASE.where("leases", tenant_id=key, status="active")) for key in keys) > 1


def _pay_by_transfer(world: Homes, facts: Facts) -> None:
    lease = _debited(world, facts)
    lease["payment"] = "transfer"
    del lease["mandate"], lease["debit_day"]


DEBIT.trap("two tenants of this name", None, lambda f: {"building": None}, _is_namesake)
DEBIT.trap("pays by transfer", _pay_by_transfer)
DEBIT.trap(
    "month already billed", differ=lambda f: {"from_month": _debited(BASE, f)["billed_until"]}
)
DEBIT.trap("tenancy has ended", lambda w, f: _debited(w, f).update(status="ended"))


# Give a tenant a parking space of the building, with its monthly charge.
def _park_facts(number: int) -> Facts:
    rng = random.Random(f"assign_parking/{number}")
    lease = _turn(_leases(number, "active"), number)
    building = BASE.get("units", lease["unit_id"])["building_id"]
    space = rng.choice(BASE.where("spaces", building_id=building, lease_id=None))
    first = max(space["free_from"], "2027-09-10")
    letters = "".join(rng.sample("ABCDEFGHKLMNPRSTVWXY", 3))
    facts: Facts = {"email": BASE.get("tenants", lease["tenant_id"])["email"]}
    facts |= {"space": space["label"], "start": _later(first, rng.choice([0, 1, 3, 8, 14, 30]))}
    facts["plate"] = f"{letters} {rng.randrange(100, 999)}"
    if rng.random() < 0.3:
        facts["remote"] = f"R-{rng.randrange(200, 400)}"
    return facts


def _solve_park(world: Homes, facts: Facts, variant: int) -> None:
    if variant % 9 == 3:
        world.stumble("find_tenant_by_email", email=facts["email"].upper())
    tenant = world.call("find_tenant_by_email", email=facts["email"])
    leases = world.call("list_leases", tenant_id=tenant["tenant_id"])
    lease = only(leases, status="active")
    if variant % 6 == 1:
        world.call("get_lease", lease_id=lease["lease_id"])
    unit = world.call("get_unit", unit_id=lease["unit_id"])
    if variant % 5 == 4:
        world.call("get_building", building_id=unit["building_id"])
    spaces = world.call("list_spaces", building_id=unit["building_id"])
    found = only(spaces, label=facts["space"])
    if variant % 8 == 7:
        world.stumble("get_space", space_id=facts["space"])
    space = world.call("get_space", space_id=found["space_id"])
    need(space["lease_id"] is None, "the space is taken")
    need(space["free_from"] <= facts["start"], "not free yet")
    target = {"space_id": space["space_id"], "lease_id": lease["lease_id"]}
    target |= {"plate": facts["plate"], **optional(facts, "remote")}
    if variant % 10 == 2:
        world.stumble("assign_space", **target, start=facts["start"].replace("-", "/"))
    world.call("assign_space", **target, start=facts["start"])
    charge = {"amount": amount_of(space, "monthly"), "start": facts["start"]}
    text = f"Parking space {space['label']}"
    world.call("add_monthly_charge", lease_id=lease["lease_id"], **charge, text=text)


PARK_WORDS = (
    "{email} takes parking space {space} from {start}, number plate {plate}.{remoted}",
    "Please assign space {space} to {email} as of {start} (plate {plate}), with the charge."
    "{remoted}",
    "Parking: {email}, {space}, car {plate}, from {start}.{remoted}",
    "Let space {space} to the tenant {email}; plate {plate}, start {start}.{remoted}",
)
PARK = Kind(
    "assign_parking",
    Homes,
    _park_facts,
    _solve_park,
    PARK_WORDS,
    lambda f: {"remoted": f" Remote control {f['remote']}." if "remote" in f else ""},
)


def _home(world: Homes, facts: Facts) -> str:
    unit = world.get("units", _lease(world, ("active",), email=facts["email"])["unit_id"])
    return str(unit["building_id"])


def _space(world: Homes, facts: Facts) -> Row:
    return world.pick("spaces", building_id=_home(world, facts), label=facts["space"])


def _elsewhere(facts: Facts) -> Facts:
    """Return the label of a space that only a larger building has."""
    own = {row["label"] for row in BASE.where("spaces", building_id=_home(BASE, facts))}
    labels = sorted({row["label"] for row in BASE.db["spaces"].values()} - own)
    return {"space": labels[0]}


PARK.trap("space taken", lambda w, f: _space(w, f).update(lease_id="LS-1002"))
PARK.trap(
    "space not free yet",
    lambda w, f: _space(w, f).update(free_from=_later(f["start"], 12)),
)
PARK.trap(
    "space of another building",
    None,
    _elsewhere,
    lambda f: len(BASE.where("spaces", building_id=_home(BASE, f))) < 16,
)
PARK.trap(
    "tenant has given notice",
    lambda w, f: _lease(w, ("active",), email=f["email"]).update(status="notice_given"),
)


# Order the repair of some defects in a tenant's flat, each with the building's contractor.
def _codes(lease: Row) -> list[str]:
    """Return the defects that may be ordered for the flat of a lease."""
    unit = BASE.get("units", lease["unit_id"])
    rows = BASE.where("framework", building_id=unit["building_id"], status="current")
    trades = [row["trade"] for row in rows]
    codes = [row["code"] for row in BASE.where("defects", paid_by="landlord")]
    codes = [code for code in codes if BASE.get("defects", code)["trade"] in trades]
    opened = [row["code"] for row in BASE.where("orders", unit_id=unit["unit_id"], status="open")]
    return [code for code in codes if code not in opened]


def _repair_facts(number: int) -> Facts:
    rng = random.Random(f"order_repairs/{number}")
    lease = _turn(_leases(number, *CURRENT), number)
    codes = rng.sample(_codes(lease), rng.choice([1, 1, 2, 2, 3, 4]))
    facts: Facts = {"phone": BASE.get("tenants", lease["tenant_id"])["phone"], "defects": codes}
    facts["reported_on"] = _later("2027-09-06", rng.randrange(0, 60))
    if rng.random() < 0.35:
        facts["access"] = rng.choice(ACCESS)
    return facts


def _solve_repair(world: Homes, facts: Facts, variant: int) -> None:
    codes = facts["defects"]
    need(codes and len(set(codes)) == len(codes), "a defect listed twice, or none")
    if variant % 8 == 5:
        world.stumble("find_tenant_by_phone", phone=facts["phone"].replace(" ", ""))
    defects = []
    if variant % 4 == 1:  # first the defects, then the flat
        defects = [world.call("get_defect", code=code) for code in codes]
    tenant = world.call("find_tenant_by_phone", phone=facts["phone"])
    leases = world.call("list_leases", tenant_id=tenant["tenant_id"])
    lease = only([row for row in leases if row["status"] in CURRENT])
    unit = world.call("get_unit", unit_id=lease["unit_id"])
    if variant % 3 == 0:
        orders = world.call("list_orders", unit_id=unit["unit_id"])
    framework = world.call("list_framework", building_id=unit["building_id"])
    if variant % 3 != 0:
        orders = world.call("list_orders", unit_id=unit["unit_id"])
    if variant % 4 != 1:
        defects = [world.call("get_defect", code=code) for code in codes]
    firms = []
    for defect in defects:
        need(defect["paid_by"] == "landlord", "the tenant pays")
        ordered = [row for row in orders if row["code"] == defect["code"]]
        need(all(row["status"] != "open" for row in ordered), "already ordered")
        firms.append(only(framework, trade=defect["trade"], status="current")["contractor_id"])
    if variant % 7 == 2:
        world.call("get_contractor", contractor_id=firms[0])
    for at, (defect, firm) in enumerate(zip(defects, firms, strict=True)):
        due = _later(facts["reported_on"], defect["within_days"])
        order = {"unit_id": unit["unit_id"], "code": defect["code"], "contractor_id": firm}
        order |= optional(facts, "access")
        if variant % 10 == 8 and at == 0:
            world.stumble("create_order", **order, due=due.replace("-", "."))
        world.call("create_order", **order, due=due)


REPAIR_WORDS = (
    "The tenant with phone {phone} reported {listed} on {reported_on}; order the repairs.{noted}",
    "Please order repairs for {phone}: {listed} (reported {reported_on}).{noted}",
    "Defects of {reported_on}, phone {phone}: {listed}.{noted}",
    "{phone} called on {reported_on} about {listed}. Send the contractors.{noted}",
)
REPAIR = Kind(
    "order_repairs",
    Homes,
    _repair_facts,
    _solve_repair,
    REPAIR_WORDS,
    lambda f: {
        "listed": ", ".join(f["defects"]),
        "noted": f" Access: {f['access']}." if "access" in f else "",
    },
)


def _flat(world: Homes, facts: Facts) -> Row:
    return world.get("units", _lease(world, CURRENT, phone=facts["phone"])["unit_id"])


def _order_before(world: Homes, facts: Facts) -> None:
    unit_id, due = _flat(world, facts)["unit_id"], _later(facts["reported_on"], 5)
    world.add("orders", unit_id=unit_id, code=facts["defects"][-1], due=due, status="open")


def _end_framework(world: Homes, facts: Facts) -> None:
    trade = world.get("defects", facts["defects"][-1])["trade"]
    key = {"building_id": _flat(world, facts)["building_id"], "trade": trade}
    world.pick("framework", **key, status="current")["status"] = "ended"


REPAIR.trap("already ordered", _order_before)
REPAIR.trap(
    "one defect is the tenant's to pay", differ=lambda f: {"defects": [*f["defects"][:-1], "LO-02"]}
)
REPAIR.trap("no contractor for the trade", _end_framework)
REPAIR.trap(
    "one defect twice",
    None,
    lambda f: {"defects": [*f["defects"], f["defects"][0]]},
    lambda f: 1 < len(f["defects"]) < 4,
)


# Replace an appliance by the cheapest one in stock that fits; have the old one collected if asked.
def _cheapest(models: list[Row], niche: float) -> Row:
    rows = [row for row in models if amount_of(row, "width_cm") <= niche]
    rows = [row for row in rows if amount_of(row, "stock") > 0]
    need(rows, "nothing in stock fits")
    return min(rows, key=lambda row: amount_of(row, "price"))


def _replace_facts(number: int) -> Facts:
    rng = random.Random(f"replace_appliance/{number}")
    reported = _later("2027-09-06", rng.randrange(0, 50))
    items = _share(BASE.where("inventory", status="in_use"), number)
    items = [row for row in items if row["owner"] == "landlord"]
    item = _turn([row for row in items if row["warranty_until"] < "2027-09-06"], number)
    unit = BASE.get("units", item["unit_id"])
    price = _cheapest(BASE.list_models(item["kind"]), item["niche_cm"])["price"]
    facts: Facts = {"building": BASE.get("buildings", unit["building_id"])["name"]}
    facts |= {"unit": unit["number"], "appliance": item["kind"], "reported_on": reported}
    facts["limit"] = price if rng.random() < 0.1 else int(price // 50 + rng.randint(1, 5)) * 50
    facts["deliver_on"] = _later(reported, rng.randrange(2, 15))
    if rng.random() < 0.5:
        facts["collect_on"] = _later(facts["deliver_on"], rng.choice([0, 0, 1, 4]))
    return facts


def _solve_replace(world: Homes, facts: Facts, variant: int) -> None:
    kind = facts["appliance"]
    if variant % 4 == 2:
        models = world.call("list_models", kind=kind)
    searched = facts["building"].split()[0] if variant % 5 == 1 else facts["building"]
    building = only(world.call("find_buildings", name=searched), name=facts["building"])
    if variant % 9 == 6:
        world.stumble("list_units", building_id=facts["building"])
    units = world.call("list_units", building_id=building["building_id"])
    unit = only(units, number=facts["unit"])
    if variant % 6 == 3:
        world.call("get_unit", unit_id=unit["unit_id"])
    inventory = world.call("list_inventory", unit_id=unit["unit_id"])
    item = only(inventory, kind=kind, status="in_use")
    need(item["owner"] == "landlord", "it belongs to the tenant")
    need(item["warranty_until"] < facts["reported_on"], "still under warranty")
    if variant % 4 != 2:
        if variant % 8 == 5:
            world.stumble("list_models", kind=kind.title())
        models = world.call("list_models", kind=kind)
    model = _cheapest(models, amount_of(item, "niche_cm"))
    need(model["price"] <= amount_of(facts, "limit"), "dearer than the limit")
    order = {"model_id": model["model_id"], "price": model["price"]}
    order["deliver_on"] = facts["deliver_on"]
    if variant % 10 == 7:
        world.stumble("order_appliance", **order, replaces=kind)
    world.call("order_appliance", **order, replaces=item["item_id"])
    if "collect_on" in facts:
        world.call("book_collection", item_id=item["item_id"], day=facts["collect_on"])


REPLACE_WORDS = (
    "The {appliance} in {unit}, {building}, broke down (reported {reported_on}). Order the cheapest"
    " that fits, up to {limit}, for {deliver_on}.{collected}",
    "Please replace the {appliance} in {building} {unit}: reported {reported_on}, delivery"
    " {deliver_on}, at most {limit}.{collected}",
    "New {appliance} for {building}, flat {unit}; defect of {reported_on}, limit {limit}, deliver"
    " on {deliver_on}.{collected}",
    "{building} {unit} needs another {appliance} on {deliver_on}, since it was reported defective"
    " on {reported_on}. Limit: {limit}.{collected}",
)
REPLACE = Kind(
    "replace_appliance",
    Homes,
    _replace_facts,
    _solve_replace,
    REPLACE_WORDS,
    lambda f: {
        "collected": f" Have the old one collected on {f['collect_on']}."
        if "collect_on" in f
        else ""
    },
)


def _item(world: Homes, facts: Facts) -> Row:
    building = world.pick("buildings", name=facts["building"])["building_id"]
    unit = world.pick("units", building_id=building, number=facts["unit"])
    key = {"unit_id": unit["unit_id"], "kind": facts["appliance"]}
    return world.pick("inventory", **key, status="in_use")


def _below_price(facts: Facts) -> Facts:
    item = _item(BASE, facts)
    price = _cheapest(BASE.list_models(item["kind"]), item["niche_cm"])["price"]
    return {"limit": int(price) - 5}


REPLACE.trap("dearer than the limit", differ=_below_price)
REPLACE.trap(
    "still under warranty",
    lambda w, f: _item(w, f).update(warranty_until=_later(f["reported_on"], 20)),
)
REPLACE.trap("appliance of the tenant", lambda w, f: _item(w, f).update(owner="tenant"))
REPLACE.trap("nothing fits the niche", lambda w, f: _item(w, f).update(niche_cm=40))


# Settle the deposit after a tenant moved out: retain damage and arrears, refund the rest.
def _damage(findings: list[Row], prices: list[Row]) -> float:
    total = 0.0
    for row in findings:
        if row["cause"] == "damage":
            need(row["disputed"] is False, "a finding is disputed")
            price = amount_of(only(prices, item=row["item"]), "price")
            total += amount_of(row, "quantity") * price
    return round(total, 2)


def _arrears(ledger: list[Row]) -> float:
    rows = [row for row in ledger if row["status"] == "open"]
    return round(sum(amount_of(row, "amount") - amount_of(row, "paid") for row in rows), 2)


def _settled(lease: Row) -> bool:
    """Tell whether a deposit can be settled without a person."""
    key = {"lease_id": lease["lease_id"]}
    final = BASE.where("inspections", **key, kind="move_out", status="signed")
    if len(final) != 1:
        return False
    damaged = [row for row in final[0]["findings"] if row["cause"] == "damage"]
    if any(row["disputed"] or row["item"] == "skylight" for row in damaged):
        return False
    costs = _damage(damaged, PRICES) + _arrears(BASE.where("ledger", **key))
    return bool(costs < lease["deposit"])


def _settle_facts(number: int) -> Facts:
    rng = random.Random(f"settle_deposit/{number}")
    lease = _turn([row for row in _leases(number, "moved_out") if _settled(row)], number)
    facts: Facts = {"email": BASE.get("tenants", lease["tenant_id"])["email"]}
    facts["iban"] = f"GB{rng.randrange(10, 99)}LETS{rng.randrange(10**13, 10**14)}"
    return {**facts, "on": _later(lease["hold_until"], rng.choice([0, 1, 2, 5, 9, 15, 33]))}


def _solve_settle(world: Homes, facts: Facts, variant: int) -> None:
    if variant % 6 == 4:
        prices = world.call("list_prices")
    if variant % 8 == 3:
        world.stumble("find_tenant_by_email", email=facts["email"].split("@")[0])
    tenant = world.call("find_tenant_by_email", email=facts["email"])
    leases = world.call("list_leases", tenant_id=tenant["tenant_id"])
    chosen = only(leases, status="moved_out")
    lease = world.call("get_lease", lease_id=chosen["lease_id"])
    need(lease["deposit_status"] == "held", "no deposit held")
    need(lease["hold_until"] <= facts["on"], "too early")
    if variant % 7 == 1:
        world.call("get_unit", unit_id=lease["unit_id"])
    if variant % 3 == 2:
        ledger = world.call("list_ledger", lease_id=lease["lease_id"])
    inspections = world.call("list_inspections", lease_id=lease["lease_id"])
    final = only(inspections, kind="move_out", status="signed")
    if variant % 6 != 4:
        prices = world.call("list_prices")
    if variant % 3 != 2:
        ledger = world.call("list_ledger", lease_id=lease["lease_id"])
    damage, arrears = _damage(final["findings"], prices), _arrears(ledger)
    amount = round(amount_of(lease, "deposit") - damage - arrears, 2)
    need(amount > 0, "nothing left to refund")
    if damage + arrears > 0:
        retained = {"damage": damage, "arrears": arrears}
        world.call("retain_deposit", lease_id=lease["lease_id"], **retained)
    refund = {"lease_id": lease["lease_id"], "amount": amount, "iban": facts["iban"]}
    if variant % 10 == 5:
        world.stumble("refund_deposit", **refund, day=facts["on"].replace("-", "/"))
    world.call("refund_deposit", **refund, day=facts["on"])


SETTLE_WORDS = (
    "Settle the deposit of {email} on {on} and pay the rest to {iban}.",
    "{email} has moved out; on {on} refund the deposit less damage and arrears to {iban}.",
    "Deposit settlement: {email}, account {iban}, date {on}.",
    "Please pay out the remaining deposit to {iban} ({email}), dated {on}.",
)
SETTLE = Kind("settle_deposit", Homes, _settle_facts, _solve_settle, SETTLE_WORDS)


def _left(world: Homes, facts: Facts) -> Row:
    return _lease(world, ("moved_out",), email=facts["email"])


def _add_finding(world: Homes, facts: Facts, item: str, disputed: bool) -> None:
    key = {"lease_id": _left(world, facts)["lease_id"], "kind": "move_out", "status": "signed"}
    finding = {"item": item, "quantity": 1, "cause": "damage", "disputed": disputed}
    world.pick("inspections", **key)["findings"].append(finding)


def _owe_much(world: Homes, facts: Facts) -> None:
    lease = _left(world, facts)
    args = ("Rent", "2027-06-01", lease["deposit"] + 100, 0, "open")
    world.add_entry(lease["lease_id"], *args)


SETTLE.trap("owes more than the deposit", _owe_much)
SETTLE.trap("a finding is disputed", lambda w, f: _add_finding(w, f, "blind", True))
SETTLE.trap(
    "before the deposit may be released",
    differ=lambda f: {"on": _later(_left(BASE, f)["hold_until"], -3)},
)
SETTLE.trap("damage without a price", lambda w, f: _add_finding(w, f, "skylight", False))

KINDS = [DEBIT, PARK, REPAIR, REPLACE, SETTLE]
