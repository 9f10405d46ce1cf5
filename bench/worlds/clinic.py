"""A veterinary clinic: owners, animals, appointments, prescriptions, surgery and the ward."""

import random
import re
from datetime import date, timedelta
from functools import cache
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

FIRST = "Ann,Anna,Anne Marie,Marie,Jan,Jana,Leo,Leon,Rob,Robert,Eva,Evan,Tim,Sofia".split(",")
LAST = "Berg Bergman Holt Holter Lind Lindqvist Stein Steiner Vogel Marsh".split()
TOWNS = ["Easton", "Easton Mills", "Kirkby", "Northfield", "Elmbridge"]
PETS = (
    "Bella Bell Max Maxi Luna Lu Rocky Milo Coco Coconut Minka Fritz Otto Nala Simba Tilly "
    "Pepper Daisy Rosie Rose Bruno Ginger Smokey Toffee Hazel Biscuit Rex Olive Ollie Basil Ziggy "
    "Poppy Pop Juno Teddy Ted Misty Clover Barney Felix Kiwi Mabel Winnie Oscar"
).split()
SPECIES = ["dog", "dog", "dog", "cat", "cat", "cat", "rabbit", "guinea pig"]
WEIGHTS = {"dog": (4, 46), "cat": (2.4, 7.9), "rabbit": (0.9, 4.5), "guinea pig": (0.6, 1.3)}
WARDS = {"dog": "dogs", "cat": "cats", "rabbit": "small animals", "guinea pig": "small animals"}
VETS = ["Dr Okafor", "Dr Hale", "Dr Halevy", "Dr Ruiz", "Dr Sand"]
REASONS = ["check-up", "dental check", "dental check follow-up", "wound check", "vaccination"]
VACCINES = {
    "dog": ["rabies", "distemper", "kennel cough"],
    "cat": ["rabies", "cat flu", "leukaemia"],
    "rabbit": ["myxomatosis", "RHD"],
    "guinea pig": [],
}
MEDICINES = [  # name, substance, price
    ("Carprofen 50 mg", "carprofen", 14.5),
    ("Carprofen 50 mg chewable", "carprofen", 17.25),
    ("Carprofen 100 mg", "carprofen", 21.9),
    ("Meloxicam drops", "meloxicam", 19.8),
    ("Meloxicam drops for cats", "meloxicam", 16.4),
    ("Amoxicillin 250 mg", "amoxicillin", 11.35),
    ("Amoxicillin syrup", "amoxicillin", 9.95),
    ("Thyroxine 200", "levothyroxine", 27),
    ("Ear drops", "gentamicin", 12.6),
    ("Eye drops", "gentamicin", 13.1),
]
DOSAGES = {
    "drops": ["2 drops twice a day", "3 drops in the evening", "1 drop every 8 hours"],
    "syrup": ["0.5 ml once a day", "2 ml twice a day"],
    "tablets": [
        "1 tablet twice a day",
        "1 tablet in the morning with food",
        "half a tablet every 8 hours",
    ],
}
SUBSTANCES = ["amoxicillin", "chicken", "gentamicin", "latex", "meloxicam", "carprofen"]
PROCEDURES = [  # name, species, price of the lightest band, upper ends of the bands in kg
    ("Dental cleaning", ["dog", "cat", "rabbit"], 140, [5, 15, 30, 90]),
    ("Dental cleaning with extraction", ["dog", "cat", "rabbit"], 225, [5, 15, 30, 90]),
    ("Neutering", ["dog", "cat", "rabbit"], 95, [3, 10, 25, 90]),
    ("Lump removal", ["dog", "cat", "rabbit", "guinea pig"], 180, [2, 10, 30, 90]),
    ("Lump removal, deep", ["dog", "cat"], 310, [10, 30, 90]),
    ("X-ray under sedation", ["dog", "cat", "rabbit"], 120, [10, 90]),
    ("Knee repair", ["dog"], 890, [10, 20, 35, 90]),
]
FEES: list[Row] = [
    {"code": "late_change", "amount": 18.5, "notice_days": 2},
    {"code": "missed_visit", "amount": 35},
    {"code": "late_collection", "ward": "dogs", "amount": 24},
    {"code": "late_collection", "ward": "cats", "amount": 16.5},
    {"code": "late_collection", "ward": "small animals", "amount": 11},
    {"code": "house_call", "amount": 60},
]


def _later(day: str, days: int) -> str:
    return (date.fromisoformat(day) + timedelta(days=days)).isoformat()


def _days(start: str, end: str) -> int:
    return (date.fromisoformat(end) - date.fromisoformat(start)).days


@cache
def _weekdays(first: str, last: str) -> list[str]:
    days = [_later(first, n) for n in range(_days(first, last) + 1)]
    return [day for day in days if date.fromisoformat(day).weekday() < 5]


class Clinic(World):
    """The clinic in March 2027."""

    NAME = "clinic"
    READS = words(
        "find_owners find_owner_by_phone find_owner_by_email get_owner list_animals get_animal "
        "find_animal_by_chip list_appointments list_free_times get_vet list_fees "
        "list_prescriptions get_prescription get_medicine find_medicines list_vaccinations "
        "find_procedures get_procedure list_consents get_surgery_day list_ward get_stay"
    )
    WRITES = words(
        "move_appointment add_charge dispense send_reminder book_procedure discharge_patient"
    )
    TABLES = tables(
        "owners owner_id OW, animals animal_id AN, vets vet_id VT, diary diary_id DY, "
        "appointments appointment_id AP, medicines medicine_id ME, prescriptions "
        "prescription_id RX, vaccinations vaccination_id VC, reminders reminder_id RM, "
        "procedures procedure_id PR, consents consent_id CF, surgery_days day SD, "
        "bookings booking_id BK, stays stay_id ST, charges charge_id CH, dispensed dispensed_id DI"
    )

    def __init__(self) -> None:
        super().__init__()
        rng = random.Random(707)
        self._add_house(rng)
        names = [f"{first} {last}" for first in FIRST for last in LAST]
        names = rng.sample(names, 52)
        names += rng.sample(names, 12)  # namesakes, in another town
        for name in names:
            self._add_owner(rng, name)
        for animal in list(self.db["animals"].values()):
            self._add_history(rng, animal)
        self._fill_ward(rng)

    def _add_house(self, rng: random.Random) -> None:
        """Add the vets with their free times, the pharmacy, the procedures, the surgery days."""
        for name in VETS:
            vet = self.add("vets", name=name, room=rng.randint(1, 4))
            for day in _weekdays("2027-03-09", "2027-05-07"):
                if rng.random() < 0.85:
                    hours = [f"{h:02}:{m}" for h in range(8, 18) for m in ("00", "20", "40")]
                    times = sorted(rng.sample(hours, rng.randint(2, 7)))
                    self.add("diary", vet_id=vet["vet_id"], day=day, free=times)
        for name, substance, price in MEDICINES:
            stock = {
                "stock": rng.randint(3, 40),
                "shelf": f"{rng.choice('ABC')}{rng.randint(1, 9)}",
            }
            self.add("medicines", name=name, substance=substance, price=price, **stock)
        for name, species, price, ends in PROCEDURES:
            prices = [price + step * rng.choice([25, 40, 55]) * 1.5 for step in range(len(ends))]
            bands = [{"up_to_kg": e, "price": p} for e, p in zip(ends, sorted(prices), strict=True)]
            more = {
                "minutes": rng.choice([30, 45, 60, 90]),
                "fasting_hours": rng.choice([6, 8, 12]),
            }
            self.add("procedures", name=name, species=species, bands=bands, **more)
        for day in _weekdays("2027-03-09", "2027-05-28"):
            places = rng.choice([0, 0, 1, 1, 2, 3, 4])
            self.add("surgery_days", day=day, open=rng.random() < 0.9, places_left=places)

    def _add_owner(self, rng: random.Random, name: str) -> None:
        taken = [row["town"] for row in self.where("owners", name=name)]
        town = rng.choice([town for town in TOWNS if town not in taken])
        number = len(self.db["owners"])
        mail = name.lower().replace(" ", ".") + ("2" if taken else "")
        row = self.add("owners", name=name, town=town, phone=f"0161 555 {4000 + 37 * number}")
        row.update(email=f"{mail}@mail.example", contact=rng.choice(["sms", "email", "post"]))
        row.update(reminders=rng.random() < 0.85, insured=rng.random() < 0.3)
        others = [f"{first} {name.rsplit(maxsplit=1)[-1]}" for first in FIRST]
        others += [f"{rng.choice(FIRST)} {rng.choice(LAST)}" for _ in range(6)]
        others = [other for other in others if other != name]
        row["may_collect"] = rng.sample(others, rng.choice([0, 1, 1, 2, 3]))
        if rng.random() < 0.2:
            row["note"] = rng.choice(["Prefers mornings", "Hard of hearing", "Breeder"])
        for pet in rng.sample(PETS, rng.choice([1, 1, 2, 2, 3])):
            self.add_animal(rng, row["owner_id"], pet, "active")
        if rng.random() < 0.35:  # an animal of former times, perhaps with the name of a new one
            own = [animal["name"] for animal in self.where("animals", owner_id=row["owner_id"])]
            pet = rng.choice(own) if rng.random() < 0.5 else rng.choice(PETS)
            self.add_animal(rng, row["owner_id"], pet, rng.choice(["deceased", "rehomed"]))

    def add_animal(self, rng: random.Random, owner_id: str, name: str, status: str) -> Row:
        species = rng.choice(SPECIES)
        row = self.add("animals", owner_id=owner_id, name=name, species=species, status=status)
        row["born"] = _later("2014-01-01", rng.randrange(0, 4300))
        row["weight_kg"] = round(rng.uniform(*WEIGHTS[species]), 1) if rng.random() < 0.95 else None
        row["allergies"] = rng.sample(SUBSTANCES, rng.choice([0, 0, 0, 1, 2]))
        if rng.random() < 0.85:
            row["chip"] = f"9780001{rng.randrange(10**7, 10**8)}"
        return row

    def _add_history(self, rng: random.Random, animal: Row) -> None:  # noqa: C901 - a history has one rule for each table
        key, living = animal["animal_id"], animal["status"] == "active"
        for _ in range(rng.randint(1, 3)):
            day = rng.choice(_weekdays("2026-06-01", "2027-02-26"))
            status = rng.choice(["done", "done", "missed", "cancelled"])
            self.add_appointment(rng, key, day, rng.choice(REASONS), status)
        if not living:
            return
        for reason in rng.sample(REASONS, rng.choice([0, 1, 1, 2])):
            day = rng.choice(_weekdays("2027-03-15", "2027-04-16"))
            status = "booked" if rng.random() < 0.85 else "cancelled"
            self.add_appointment(rng, key, day, reason, status)
        shelf = list(self.db["medicines"].values())
        shelf = [m for m in shelf if animal["species"] == "cat" or "cats" not in m["name"]]
        for medicine in rng.sample(shelf, rng.choice([0, 1, 1, 2, 3])):
            if rng.random() < 0.3:
                self.add_prescription(rng, animal, medicine, "2026-01-10", "ended")
            start = _later("2026-10-01", rng.randrange(0, 150))
            status = "active" if rng.random() < 0.85 else "ended"
            self.add_prescription(rng, animal, medicine, start, status)
        for vaccine in VACCINES[animal["species"]]:
            for years in rng.sample([1, 2, 3], rng.choice([0, 1, 2, 2])):
                given = _later("2027-03-05", -365 * years + rng.randrange(0, 120))
                self.add_vaccination(key, vaccine, given, 730 if vaccine == "rabies" else 365)
        for row in self.where("vaccinations", animal_id=key):
            if row["valid_until"] < "2027-01-15" or rng.random() < 0.12:
                row["reminded_on"] = _later(row["valid_until"], -rng.randrange(20, 40))
        fitting = [p for p in self.db["procedures"].values() if animal["species"] in p["species"]]
        for procedure in rng.sample(fitting, min(len(fitting), rng.choice([0, 1, 1, 2]))):
            if rng.random() < 0.3:
                self.add_consent(key, procedure["name"], "2026-02-03", False)
            if rng.random() < 0.2:
                self.add_consent(key, procedure["name"], "2027-01-20", True)
            signed = _later("2027-02-01", rng.randrange(0, 35))
            self.add_consent(key, procedure["name"], signed, False)

    def add_appointment(
        self, rng: random.Random, animal_id: str, day: str, reason: str, status: str
    ) -> Row:
        time = f"{rng.randint(8, 17):02}:{rng.choice(['00', '20', '40'])}"
        values = {"vet_id": rng.choice(list(self.db["vets"])), "day": day, "time": time}
        values |= {"reason": reason, "status": status}
        return self.add("appointments", animal_id=animal_id, **values)

    def add_prescription(
        self, rng: random.Random, animal: Row, medicine: Row, start: str, status: str
    ) -> Row:
        values = {"medicine_id": medicine["medicine_id"], "medicine": medicine["name"]}
        form = next((form for form in DOSAGES if form in medicine["name"]), "tablets")
        values |= {"dosage": rng.choice(DOSAGES[form]), "status": status, "prescribed": start}
        values |= {"packs_left": rng.randint(1, 6) if status == "active" else rng.randint(0, 2)}
        values |= {"next_from": _later(start, rng.randrange(20, 150))}
        values |= {"valid_until": _later(start, 365 if status == "active" else 180)}
        return self.add("prescriptions", animal_id=animal["animal_id"], **values)

    def add_vaccination(self, animal_id: str, vaccine: str, given: str, days: int) -> Row:
        values = {"vaccine": vaccine, "given": given, "valid_until": _later(given, days)}
        return self.add("vaccinations", animal_id=animal_id, **values, reminded_on=None)

    def add_consent(self, animal_id: str, procedure: str, signed: str, withdrawn: bool) -> Row:
        values = {"procedure": procedure, "signed_on": signed, "valid_until": _later(signed, 90)}
        return self.add("consents", animal_id=animal_id, **values, withdrawn=withdrawn)

    def _fill_ward(self, rng: random.Random) -> None:
        living = self.where("animals", status="active")
        for number, animal in enumerate(rng.sample(living, 52)):
            admitted = _later("2027-03-01", rng.randrange(0, 12))
            cleared = _later(admitted, rng.randrange(1, 6)) if rng.random() < 0.85 else None
            total = round(rng.uniform(90, 1400), 2)
            paid = total if rng.random() < 0.85 else round(total / 2, 2)
            stay = self.add("stays", animal_id=animal["animal_id"], kennel=f"K{number + 1:02}")
            stay.update(ward=WARDS[animal["species"]], admitted=admitted)
            stay.update(status="cleared" if cleared else "observation", cleared_on=cleared)
            stay["collect_by"] = _later(cleared, 2) if cleared else None
            stay["bill"] = {"total": total, "paid": paid}

    # Read tools

    def find_owners(self, name: str) -> list[Row]:
        return self.search("owners", "name", name, "owner_id", "name", "town")

    def find_owner_by_phone(self, phone: str) -> Row:
        return self.pick("owners", phone=phone)

    def find_owner_by_email(self, email: str) -> Row:
        return self.pick("owners", email=email)

    def get_owner(self, owner_id: str) -> Row:
        return self.get("owners", owner_id)

    def list_animals(self, owner_id: str) -> list[Row]:
        rows = self.where("animals", owner_id=self.get("owners", owner_id)["owner_id"])
        return [optional(row, "animal_id", "name", "species", "status") for row in rows]

    def get_animal(self, animal_id: str) -> Row:
        return self.get("animals", animal_id)

    def find_animal_by_chip(self, chip: str) -> Row:
        row = self.pick("animals", chip=chip)
        return optional(row, "animal_id", "owner_id", "name", "species", "status", "chip")

    def list_appointments(self, animal_id: str) -> list[Row]:
        return self.where("appointments", animal_id=self.get("animals", animal_id)["animal_id"])

    def list_free_times(self, vet_id: str, day: str) -> list[str]:
        self.get("vets", vet_id)
        rows = self.where("diary", vet_id=vet_id, day=self.iso(day))
        return [time for row in rows for time in row["free"]]

    def get_vet(self, vet_id: str) -> Row:
        return self.get("vets", vet_id)

    def list_fees(self) -> list[Row]:
        return FEES

    def list_prescriptions(self, animal_id: str) -> list[Row]:
        rows = self.where("prescriptions", animal_id=self.get("animals", animal_id)["animal_id"])
        return [
            optional(row, "prescription_id", "medicine", "status", "prescribed") for row in rows
        ]

    def get_prescription(self, prescription_id: str) -> Row:
        return self.get("prescriptions", prescription_id)

    def get_medicine(self, medicine_id: str) -> Row:
        return self.get("medicines", medicine_id)

    def find_medicines(self, name: str) -> list[Row]:
        return self.search("medicines", "name", name, "medicine_id", "name")

    def list_vaccinations(self, animal_id: str) -> list[Row]:
        return self.where("vaccinations", animal_id=self.get("animals", animal_id)["animal_id"])

    def find_procedures(self, name: str) -> list[Row]:
        return self.search("procedures", "name", name, "procedure_id", "name")

    def get_procedure(self, procedure_id: str) -> Row:
        return self.get("procedures", procedure_id)

    def list_consents(self, animal_id: str) -> list[Row]:
        return self.where("consents", animal_id=self.get("animals", animal_id)["animal_id"])

    def get_surgery_day(self, day: str) -> Row:
        return self.get("surgery_days", self.iso(day))

    def list_ward(self, ward: str) -> list[Row]:
        if ward not in WARDS.values():
            raise ToolError(f"unknown ward {ward!r}: use {', '.join(sorted(set(WARDS.values())))}")
        stays = [row for row in self.where("stays", ward=ward) if row["status"] != "discharged"]
        return [
            {
                **optional(row, "stay_id", "kennel"),
                **optional(self.get("animals", row["animal_id"]), "name", "species"),
            }
            for row in stays
        ]

    def get_stay(self, stay_id: str) -> Row:
        return self.get("stays", stay_id)

    # Write tools

    def move_appointment(self, appointment_id: str, day: str, time: str) -> Row:
        row = self.get("appointments", appointment_id)
        if not isinstance(time, str) or not re.fullmatch(r"\d\d:\d\d", time):
            raise ToolError(f"invalid time {time!r}: use HH:MM")
        row.update(day=self.iso(day), time=time)
        for entry in self.where("diary", vet_id=row["vet_id"], day=day):
            entry["free"] = [free for free in entry["free"] if free != time]
        return {"appointment_id": appointment_id, "day": day, "time": time}

    def add_charge(self, owner_id: str, amount: float, text: str) -> Row:
        if isinstance(amount, bool) or not isinstance(amount, int | float) or amount <= 0:
            raise ToolError(f"invalid amount {amount!r}")
        self.get("owners", owner_id)
        return self.add("charges", owner_id=owner_id, amount=amount, text=text)

    def dispense(self, prescription_id: str, packs: int, label: str) -> Row:
        row = self.get("prescriptions", prescription_id)
        if isinstance(packs, bool) or not isinstance(packs, int) or packs < 1:
            raise ToolError(f"invalid number of packs {packs!r}")
        row["packs_left"] -= packs
        self.get("medicines", row["medicine_id"])["stock"] -= packs
        return self.add("dispensed", prescription_id=prescription_id, packs=packs, label=label)

    def send_reminder(
        self, vaccination_id: str, channel: str, text: str, signed_by: str = ""
    ) -> Row:
        row = self.get("vaccinations", vaccination_id)
        if channel not in ("sms", "email", "post"):
            raise ToolError(f"unknown channel {channel!r}")
        row["reminded_on"] = "2027-03-08"
        values = {"channel": channel, "text": text, "signed_by": signed_by}
        return self.add("reminders", vaccination_id=vaccination_id, **values)

    def book_procedure(
        self,
        animal_id: str,
        procedure_id: str,
        day: str,
        price: float,
        consent_id: str,
        note: str = "",
    ) -> Row:
        self.get("animals", animal_id)
        self.get("procedures", procedure_id)
        self.get("consents", consent_id)
        self.get("surgery_days", self.iso(day))["places_left"] -= 1
        values: Row = {"animal_id": animal_id, "procedure_id": procedure_id, "day": day}
        values |= {"price": price, "consent_id": consent_id, "note": note}
        return {"booking_id": self.add("bookings", **values)["booking_id"], "status": "booked"}

    def discharge_patient(self, stay_id: str, day: str, collected_by: str) -> Row:
        row = self.get("stays", stay_id)
        row.update(status="discharged", discharged_on=self.iso(day), collected_by=collected_by)
        return {"stay_id": stay_id, "status": "discharged"}


BASE = Clinic()


def _alone(rows: list[Row], **wanted: Any) -> bool:
    return sum(all(row.get(k) == v for k, v in wanted.items()) for row in rows) == 1


def _own_animal(world: Clinic, owner_id: str, name: str, variant: int) -> Row:
    """Find the living animal of an owner by its name and read its record."""
    if variant % 9 == 5:
        world.stumble("get_animal", animal_id=name)
    rows = world.call("list_animals", owner_id=owner_id)
    chosen = only(rows, name=name, status="active")
    if variant % 7 == 3:  # looks at all the animals of the household
        records = [world.call("get_animal", animal_id=row["animal_id"]) for row in rows]
        return only(records, animal_id=chosen["animal_id"])
    record: Row = world.call("get_animal", animal_id=chosen["animal_id"])
    return record


def _animals(world: Clinic, name: str, /, **owner: Any) -> list[Row]:
    """Return the living animals of this name that belong to the owner (for facts and traps)."""
    owner_id = world.pick("owners", **owner)["owner_id"]
    return world.where("animals", owner_id=owner_id, name=name, status="active")


# Move a booked appointment to another time of the same vet; charge a fee at short notice.
def _move_facts(number: int) -> Facts:
    rng = random.Random(f"move_appointment/{number}")
    while True:
        row = rng.choice(BASE.where("appointments", status="booked"))
        animal = BASE.get("animals", row["animal_id"])
        asked = _later(row["day"], -rng.choice([0, 1, 1, 2, 2, 3, 4, 6, 9, 13]))
        diary = BASE.where("diary", vet_id=row["vet_id"])
        days = [entry for entry in diary if asked < entry["day"] and entry["day"] != row["day"]]
        days = [entry for entry in days if abs(_days(row["day"], entry["day"])) < 22]
        if days:
            break
    entry = rng.choice(days)
    owner = BASE.get("owners", animal["owner_id"])
    facts = {"phone": owner["phone"], "animal": animal["name"], "reason": row["reason"]}
    return {**facts, "day": entry["day"], "time": rng.choice(entry["free"]), "asked_on": asked}


def _solve_move(world: Clinic, facts: Facts, variant: int) -> None:
    if variant % 8 == 6:
        world.stumble("find_owner_by_phone", phone=facts["phone"].replace(" ", ""))
    if variant % 5 == 4:
        world.call("list_fees")
    owner = world.call("find_owner_by_phone", phone=facts["phone"])
    animal = _own_animal(world, owner["owner_id"], facts["animal"], variant)
    rows = world.call("list_appointments", animal_id=animal["animal_id"])
    row = only(rows, reason=facts["reason"], status="booked")
    need(facts["asked_on"] <= row["day"], "the appointment is over")
    need(facts["asked_on"] < facts["day"], "the new day is over")
    if variant % 6 == 1:
        world.call("get_vet", vet_id=row["vet_id"])
    if variant % 3 == 2:
        fees = world.call("list_fees")
    times = world.call("list_free_times", vet_id=row["vet_id"], day=facts["day"])
    need(facts["time"] in times, "the time is not free")
    if variant % 3 != 2:
        fees = world.call("list_fees")
    fee = only(fees, code="late_change")
    target = {"appointment_id": row["appointment_id"], "day": facts["day"]}
    if variant % 10 == 8:
        world.stumble("move_appointment", **target, time=facts["time"].replace(":", "."))
    world.call("move_appointment", **target, time=facts["time"])
    if _days(facts["asked_on"], row["day"]) < amount_of(fee, "notice_days"):
        text = f"Late change: {animal['name']}, {row['reason']} on {row['day']}"
        charge = {"amount": amount_of(fee, "amount"), "text": text}
        world.call("add_charge", owner_id=owner["owner_id"], **charge)


MOVE_WORDS = (
    "The owner with phone {phone} called on {asked_on}: {animal}'s {reason} should move to {day}"
    " at {time}. Charge the late fee if it applies.",
    "Please move {animal}'s {reason} to {day}, {time} (phone {phone}, asked on {asked_on}), with"
    " the fee for short notice if due.",
    "Appointment change received {asked_on}: {animal}, {reason}, phone {phone}, new time {day}"
    " {time}.",
    "{phone} asked on {asked_on} for {day} at {time} instead, for the {reason} of {animal}.",
)
MOVE = Kind("move_appointment", Clinic, _move_facts, _solve_move, MOVE_WORDS)


def _booked(world: Clinic, facts: Facts) -> Row:
    animal = _animals(world, facts["animal"], phone=facts["phone"])[0]
    key = {"animal_id": animal["animal_id"], "reason": facts["reason"]}
    return world.pick("appointments", **key, status="booked")


def _take_time(world: Clinic, facts: Facts) -> None:
    vet = _booked(world, facts)["vet_id"]
    entry = world.pick("diary", vet_id=vet, day=facts["day"])
    entry["free"] = [time for time in entry["free"] if time != facts["time"]]


def _book_again(world: Clinic, facts: Facts) -> None:
    row = _booked(world, facts)
    values = {key: value for key, value in row.items() if key != "appointment_id"}
    world.add("appointments", **{**values, "day": _later(row["day"], 7)})


def _other_phone(facts: Facts) -> Facts:
    """Return the phone of the next owner who has no animal of this name."""
    owners = list(BASE.db["owners"].values())
    at = next(n for n, row in enumerate(owners) if row["phone"] == facts["phone"])
    for row in owners[at + 1 :] + owners[:at]:
        if not BASE.where("animals", owner_id=row["owner_id"], name=facts["animal"]):
            return {"phone": row["phone"]}
    raise AssertionError("every owner has such an animal")


MOVE.trap("time no longer free", _take_time)
MOVE.trap("animal of another owner", differ=_other_phone)
MOVE.trap("appointment cancelled", lambda w, f: _booked(w, f).update(status="cancelled"))
MOVE.trap("two such appointments", _book_again)


# Dispense packs on a prescription, with a label, and charge for them.
def _refill_facts(number: int) -> Facts:
    rng = random.Random(f"refill_prescription/{number}")
    while True:
        row = rng.choice(BASE.where("prescriptions", status="active"))
        animal = BASE.get("animals", row["animal_id"])
        medicine = BASE.get("medicines", row["medicine_id"])
        first = max(row["next_from"], "2027-03-08")
        last = min(row["valid_until"], "2027-08-31")
        if medicine["substance"] not in animal["allergies"] and first <= last:
            break
    owner = BASE.get("owners", animal["owner_id"])
    packs = rng.randint(1, min(4, row["packs_left"], medicine["stock"]))
    facts = {"owner_email": owner["email"], "animal": animal["name"], "medicine": row["medicine"]}
    on = _later(first, rng.randrange(0, min(60, _days(first, last)) + 1))
    return {**facts, "packs": packs, "on": on}


def _solve_refill(world: Clinic, facts: Facts, variant: int) -> None:
    if variant % 6 == 5:
        world.call("find_medicines", name=facts["medicine"].split()[0])
    owner = world.call("find_owner_by_email", email=facts["owner_email"])
    animal = _own_animal(world, owner["owner_id"], facts["animal"], variant)
    rows = world.call("list_prescriptions", animal_id=animal["animal_id"])
    chosen = only(rows, medicine=facts["medicine"], status="active")
    if variant % 8 == 2:  # reads all of them
        records = [
            world.call("get_prescription", prescription_id=row["prescription_id"]) for row in rows
        ]
        script = only(records, prescription_id=chosen["prescription_id"])
    else:
        script = world.call("get_prescription", prescription_id=chosen["prescription_id"])
    need(script["next_from"] <= facts["on"] <= script["valid_until"], "not on that day")
    packs = amount_of(facts, "packs")
    need(0 < packs <= amount_of(script, "packs_left"), "more packs than prescribed")
    if variant % 9 == 7:
        world.stumble("get_medicine", medicine_id=script["medicine"])
    medicine = world.call("get_medicine", medicine_id=script["medicine_id"])
    need(packs <= amount_of(medicine, "stock"), "not enough in stock")
    need(medicine["substance"] not in animal["allergies"], "the animal is allergic")
    label = f"{animal['name']} ({owner['name']}): {script['dosage']}"
    given = {"prescription_id": script["prescription_id"], "label": label}
    if variant % 10 == 4:
        world.stumble("dispense", **given, packs=str(packs))
    world.call("dispense", **given, packs=packs)
    amount = round(packs * amount_of(medicine, "price"), 2)
    text = f"{packs} x {script['medicine']}"
    world.call("add_charge", owner_id=owner["owner_id"], amount=amount, text=text)


REFILL_WORDS = (
    "{owner_email} collects {packs} pack(s) of {medicine} for {animal} on {on}; dispense and"
    " charge them.",
    "Refill for {animal} ({owner_email}): {packs} x {medicine}, pick-up {on}.",
    "Please get {packs} x {medicine} ready for {animal} on {on}, owner {owner_email}, and put it"
    " on the account.",
    "Prescription refill on {on}: {medicine}, {packs} pack(s), animal {animal}, {owner_email}.",
)
REFILL = Kind("refill_prescription", Clinic, _refill_facts, _solve_refill, REFILL_WORDS)


def _script(world: Clinic, facts: Facts) -> Row:
    animal = _animals(world, facts["animal"], email=facts["owner_email"])[0]
    key = {"animal_id": animal["animal_id"], "medicine": facts["medicine"]}
    return world.pick("prescriptions", **key, status="active")


def _make_allergic(world: Clinic, facts: Facts) -> None:
    script = _script(world, facts)
    substance = world.get("medicines", script["medicine_id"])["substance"]
    world.get("animals", script["animal_id"])["allergies"].append(substance)


REFILL.trap(
    "more packs than are left",
    lambda w, f: _script(w, f).update(packs_left=f["packs"] - 1),
    where=lambda f: f["packs"] > 1,
)
REFILL.trap(
    "after the prescription expired",
    differ=lambda f: {"on": _later(_script(BASE, f)["valid_until"], 3)},
)
REFILL.trap("allergic to the substance", _make_allergic)
REFILL.trap(
    "before the next refill is allowed",
    lambda w, f: _script(w, f).update(next_from=_later(f["on"], 4)),
)


# Remind the owners of some animals of a vaccination that runs out.
def _latest(rows: list[Row], vaccine: str) -> Row:
    rows = [row for row in rows if row["vaccine"] == vaccine]
    need(rows, "never vaccinated")
    return max(rows, key=lambda row: str(row["valid_until"]))


def _due(world: Clinic, vaccine: str) -> list[tuple[Row, Row]]:
    """Return the chipped animals to be reminded of, each with its latest vaccination."""
    pairs = []
    for animal in world.where("animals", status="active"):
        rows = world.where("vaccinations", animal_id=animal["animal_id"], vaccine=vaccine)
        if rows and "chip" in animal and world.get("owners", animal["owner_id"])["reminders"]:
            latest = _latest(rows, vaccine)
            if latest["reminded_on"] is None and latest["valid_until"] >= "2027-01-01":
                pairs.append((animal, latest))
    return pairs


def _remind_facts(number: int) -> Facts:
    rng = random.Random(f"remind_vaccinations/{number}")
    vaccine = rng.choice(["rabies", "distemper", "kennel cough", "cat flu", "leukaemia"])
    candidates = _due(BASE, vaccine)
    while True:
        due = _later("2027-04-01", rng.randrange(0, 100))
        pairs = [pair for pair in candidates if pair[1]["valid_until"] <= due]
        if len(pairs) >= 2:
            break
    chosen = rng.sample(pairs, rng.randint(1, min(4, len(pairs))))
    if rng.random() < 0.2:
        due = max(latest["valid_until"] for _, latest in chosen)
    facts: Facts = {"chips": [animal["chip"] for animal, _ in chosen], "vaccine": vaccine}
    facts["due_by"] = due
    if rng.random() < 0.4:
        facts["signed_by"] = rng.choice([*VETS, "Reception"])
    return facts


def _solve_remind(world: Clinic, facts: Facts, variant: int) -> None:  # noqa: C901 - the task has so many cases
    chips, vaccine = facts["chips"], facts["vaccine"]
    need(chips and len(set(chips)) == len(chips), "a chip listed twice, or none")
    if variant % 8 == 3:
        world.stumble("find_animal_by_chip", chip=f"#{chips[0]}")
    animals, owners, latest = [], [], []
    if variant % 4 == 1:  # first all animals, then the rest
        animals = [world.call("find_animal_by_chip", chip=chip) for chip in chips]
    for at, chip in enumerate(chips):
        if variant % 4 != 1:
            animals.append(world.call("find_animal_by_chip", chip=chip))
        key = animals[at]["animal_id"]
        if variant % 3 == 0:
            latest.append(_latest(world.call("list_vaccinations", animal_id=key), vaccine))
        owners.append(world.call("get_owner", owner_id=animals[at]["owner_id"]))
        if variant % 3 != 0:
            latest.append(_latest(world.call("list_vaccinations", animal_id=key), vaccine))
    if variant % 7 == 4:
        world.call("list_appointments", animal_id=animals[-1]["animal_id"])
    for animal, owner, row in zip(animals, owners, latest, strict=True):
        need(animal["status"] == "active", "the animal is not a patient any more")
        need(owner["reminders"] is True, "the owner wants no reminders")
        need(row["valid_until"] <= facts["due_by"], "not due yet")
        need(row["reminded_on"] is None, "already reminded")
    for at, (animal, owner, row) in enumerate(zip(animals, owners, latest, strict=True)):
        text = f"Dear {owner['name']}, {animal['name']} is protected against {vaccine} until"
        text += f" {row['valid_until']}. Please call us for an appointment."
        sent = {"vaccination_id": row["vaccination_id"], "text": text}
        sent |= optional(facts, "signed_by")
        if variant % 10 == 9 and at == 0:
            world.stumble("send_reminder", **sent, channel=owner["contact"].upper())
        world.call("send_reminder", **sent, channel=owner["contact"])


REMIND_WORDS = (
    "Send {vaccine} reminders for the animals with chips {listed}, if due by {due_by}.{signed}",
    "Please remind the owners of {listed} of the {vaccine} vaccination (due by {due_by}).{signed}",
    "Vaccination reminders, {vaccine}, due by {due_by}: {listed}.{signed}",
    "The {vaccine} vaccination of {listed} runs out by {due_by}; write to the owners.{signed}",
)
REMIND = Kind(
    "remind_vaccinations",
    Clinic,
    _remind_facts,
    _solve_remind,
    REMIND_WORDS,
    lambda f: {
        "listed": ", ".join(f["chips"]),
        "signed": f" Signed by {f['signed_by']}." if "signed_by" in f else "",
    },
)


def _last_chip(world: Clinic, facts: Facts) -> Row:
    return world.pick("animals", chip=facts["chips"][-1])


def _vaccinate(world: Clinic, facts: Facts) -> None:
    animal = _last_chip(world, facts)
    world.add_vaccination(animal["animal_id"], facts["vaccine"], "2027-03-01", 730)


def _no_reminders(world: Clinic, facts: Facts) -> None:
    world.get("owners", _last_chip(world, facts)["owner_id"])["reminders"] = False


REMIND.trap("owner wants no reminders", _no_reminders)
REMIND.trap("animal deceased", lambda w, f: _last_chip(w, f).update(status="deceased"))
REMIND.trap("vaccinated again since", _vaccinate)
REMIND.trap(
    "one animal twice",
    None,
    lambda f: {"chips": [*f["chips"], f["chips"][0]]},
    lambda f: 1 < len(f["chips"]) < 4,
)


# Book a procedure at the price for the animal's weight, within what the owner approved.
def _price(procedure: Row, animal: Row) -> float:
    weight = amount_of(animal, "weight_kg")
    bands = [band for band in procedure["bands"] if weight <= band["up_to_kg"]]
    need(bands, "heavier than all bands")
    return amount_of(min(bands, key=lambda band: float(band["up_to_kg"])), "price")


def _usable(consents: list[Row], procedure: str, day: str) -> list[Row]:
    rows = [row for row in consents if row["procedure"] == procedure and not row["withdrawn"]]
    return [row for row in rows if row["signed_on"] <= day <= row["valid_until"]]


def _book_facts(number: int) -> Facts:
    rng = random.Random(f"book_procedure/{number}")
    while True:
        consent = rng.choice(BASE.where("consents", withdrawn=False))
        animal = BASE.get("animals", consent["animal_id"])
        days = [row for row in BASE.where("surgery_days", open=True) if row["places_left"] > 0]
        day = rng.choice(days)["day"]
        usable = _usable(BASE.list_consents(animal["animal_id"]), consent["procedure"], day)
        if len(usable) == 1 and animal["weight_kg"] is not None:
            break
    owner = BASE.get("owners", animal["owner_id"])
    price = _price(BASE.pick("procedures", name=consent["procedure"]), animal)
    facts: Facts = {"owner": owner["name"], "animal": animal["name"]}
    if len(BASE.where("owners", name=owner["name"])) > 1:
        facts["town"] = owner["town"]
    facts |= {"procedure": consent["procedure"], "day": day}
    facts["approved"] = price if rng.random() < 0.15 else (price // 50 + rng.randint(1, 5)) * 50
    if rng.random() < 0.3:
        facts["note"] = rng.choice(["Nervous", "Owner waits in the house", "Bring own blanket"])
    return facts


def _solve_book(world: Clinic, facts: Facts, variant: int) -> None:
    name = facts["owner"]
    searched = name.split()[-1] if variant % 5 == 2 else name
    rows = world.call("find_owners", name=searched)
    found = only(rows, name=name, **optional(facts, "town"))
    if variant % 6 == 3:
        world.call("get_owner", owner_id=found["owner_id"])
    if variant % 4 == 3:
        place = world.call("get_surgery_day", day=facts["day"])
    animal = _own_animal(world, found["owner_id"], facts["animal"], variant)
    part = re.split(r",| with", facts["procedure"])[0] if variant % 3 == 1 else facts["procedure"]
    match = only(world.call("find_procedures", name=part), name=facts["procedure"])
    procedure = world.call("get_procedure", procedure_id=match["procedure_id"])
    need(animal["species"] in procedure["species"], "not for this species")
    price = _price(procedure, animal)
    need(price <= amount_of(facts, "approved"), "dearer than approved")
    consents = world.call("list_consents", animal_id=animal["animal_id"])
    usable = _usable(consents, procedure["name"], facts["day"])
    need(len(usable) == 1, f"{len(usable)} usable consents")
    if variant % 4 != 3:
        if variant % 9 == 1:
            world.stumble("get_surgery_day", day=facts["day"].replace("-", "/"))
        place = world.call("get_surgery_day", day=facts["day"])
    need(place["open"] is True and amount_of(place, "places_left") > 0, "no place on that day")
    args = {"animal_id": animal["animal_id"], "day": facts["day"], "price": price}
    args |= {"consent_id": usable[0]["consent_id"], **optional(facts, "note")}
    if variant % 10 == 6:
        world.stumble("book_procedure", **args, procedure_id=procedure["name"])
    world.call("book_procedure", **args, procedure_id=procedure["procedure_id"])


BOOK_WORDS = (
    "Book {procedure} for {animal} of {who} on {day}; up to {approved} is approved.{noted}",
    "{who} would like {procedure} for {animal} on {day} and agrees to at most {approved}.{noted}",
    "Surgery booking: {animal} ({who}), {procedure}, {day}, limit {approved}.{noted}",
    "Please enter {procedure} on {day} for {animal}, owner {who}, price limit {approved}.{noted}",
)
BOOK = Kind(
    "book_procedure",
    Clinic,
    _book_facts,
    _solve_book,
    BOOK_WORDS,
    lambda f: {
        "who": f["owner"] + (f" from {f['town']}" if "town" in f else ""),
        "noted": f" Note: {f['note']}." if "note" in f else "",
    },
)


def _patient(world: Clinic, facts: Facts) -> Row:
    owner = {"name": facts["owner"], **optional(facts, "town")}
    return _animals(world, facts["animal"], **owner)[0]


def _withdraw(world: Clinic, facts: Facts) -> None:
    for row in world.list_consents(_patient(world, facts)["animal_id"]):
        row["withdrawn"] = row["withdrawn"] or row["procedure"] == facts["procedure"]


def _namesake(world: Clinic, facts: Facts) -> None:
    """Give each owner of this name an animal of this name, with the same consent."""
    owners = world.where("owners", name=facts["owner"])
    have = [(row, _animals(world, facts["animal"], owner_id=row["owner_id"])) for row in owners]
    model = next(rows[0] for _, rows in have if rows)
    for owner, rows in have:
        if not rows:
            values = {**model, "owner_id": owner["owner_id"]}
            values = {key: v for key, v in values.items() if key not in ("animal_id", "chip")}
            added = world.add("animals", **values)["animal_id"]
            signed = _later(facts["day"], -20)
            world.add_consent(added, facts["procedure"], signed, False)


def _too_little(facts: Facts) -> Facts:
    procedure = BASE.pick("procedures", name=facts["procedure"])
    return {"approved": _price(procedure, _patient(BASE, facts)) - 5}


BOOK.trap("dearer than approved", differ=_too_little)
BOOK.trap("consent withdrawn", _withdraw)
BOOK.trap("two owners of this name", _namesake, lambda f: {"town": None}, lambda f: "town" in f)
BOOK.trap(
    "no place left on the day", lambda w, f: w.get("surgery_days", f["day"]).update(places_left=0)
)


# Hand an animal in the ward over to the person who collects it; charge if it is late.
def _discharge_facts(number: int) -> Facts:
    rng = random.Random(f"discharge_patient/{number}")
    stays = BASE.where("stays", status="cleared")
    stay = rng.choice([row for row in stays if row["bill"]["paid"] >= row["bill"]["total"]])
    animal = BASE.get("animals", stay["animal_id"])
    owner = BASE.get("owners", animal["owner_id"])
    facts: Facts = {"ward": stay["ward"], "animal": animal["name"]}
    if not _alone(BASE.list_ward(stay["ward"]), name=animal["name"]) or rng.random() < 0.15:
        facts["kennel"] = stay["kennel"]
    facts["collected_by"] = rng.choice([owner["name"], *owner["may_collect"]])
    return {**facts, "on": _later(stay["cleared_on"], rng.choice([0, 1, 1, 2, 2, 3, 4, 5, 6]))}


def _solve_discharge(world: Clinic, facts: Facts, variant: int) -> None:
    if variant % 9 == 2:
        world.stumble("list_ward", ward=f"{facts['ward']} ward")
    rows = world.call("list_ward", ward=facts["ward"])
    if variant % 6 == 5:
        fees = world.call("list_fees")
    found = only(rows, name=facts["animal"], **optional(facts, "kennel"))
    stay = world.call("get_stay", stay_id=found["stay_id"])
    animal = world.call("get_animal", animal_id=stay["animal_id"])
    owner = world.call("get_owner", owner_id=animal["owner_id"])
    if variant % 7 == 1:
        world.call("list_prescriptions", animal_id=animal["animal_id"])
    need(facts["collected_by"] in [owner["name"], *owner["may_collect"]], "may not collect it")
    need(stay["status"] == "cleared" and stay["cleared_on"] <= facts["on"], "not cleared")
    bill = stay["bill"]
    need(amount_of(bill, "total") <= amount_of(bill, "paid"), "the bill is open")
    out = {"stay_id": stay["stay_id"], "collected_by": facts["collected_by"]}
    if variant % 10 == 3:
        world.stumble("discharge_patient", **out, day=facts["on"].replace("-", "."))
    late = stay["collect_by"] < facts["on"]
    if variant % 6 != 5 and (late or variant % 4 == 0):
        fees = world.call("list_fees")
    if late:
        fee = only(fees, code="late_collection", ward=facts["ward"])
    world.call("discharge_patient", **out, day=facts["on"])
    if late:
        text = f"Late collection of {animal['name']}, due {stay['collect_by']}"
        charge = {"amount": amount_of(fee, "amount"), "text": text}
        world.call("add_charge", owner_id=owner["owner_id"], **charge)


DISCHARGE_WORDS = (
    "{collected_by} collects {animal}{place} from the {ward} ward on {on}; discharge, with the fee"
    " if it is late.",
    "Discharge {animal}{place}, {ward} ward, on {on}. Collected by {collected_by}.",
    "{animal}{place} ({ward}) goes home on {on} with {collected_by}; mind the late fee.",
    "Ward {ward}: {collected_by} takes {animal}{place} home on {on}.",
)
DISCHARGE = Kind(
    "discharge_patient",
    Clinic,
    _discharge_facts,
    _solve_discharge,
    DISCHARGE_WORDS,
    lambda f: {"place": f" in {f['kennel']}" if "kennel" in f else ""},
)


def _stay(world: Clinic, facts: Facts) -> Row:
    rows = world.list_ward(facts["ward"])
    found = only(rows, name=facts["animal"], **optional(facts, "kennel"))
    return world.get("stays", found["stay_id"])


def _owner_of(world: Clinic, facts: Facts) -> Row:
    animal = world.get("animals", _stay(world, facts)["animal_id"])
    return world.get("owners", animal["owner_id"])


def _stranger(facts: Facts) -> Facts:
    """Return a person of the owner's family name who may not collect the animal."""
    owner = _owner_of(BASE, facts)
    names = [f"{first} {owner['name'].split()[-1]}" for first in FIRST]
    known = [owner["name"], *owner["may_collect"]]
    return {"collected_by": next(name for name in names if name not in known)}


def _open_bill(world: Clinic, facts: Facts) -> None:
    bill = _stay(world, facts)["bill"]
    bill["paid"] = round(bill["total"] - 40, 2)


DISCHARGE.trap("collected by a stranger", differ=_stranger)
DISCHARGE.trap(
    "still under observation",
    lambda w, f: _stay(w, f).update(status="observation"),
)
DISCHARGE.trap("bill not paid in full", _open_bill)
DISCHARGE.trap(
    "before it is cleared",
    differ=lambda f: {"on": _later(_stay(BASE, f)["cleared_on"], -1)},
)

KINDS = [MOVE, REFILL, REMIND, BOOK, DISCHARGE]
