"""Kinds of three desks where a clerk looks things up before he writes.

Their requests say more than a routine needs: the name, the room or the price that a record has. The
records and the wordings are plain data; a request is a wording with the values of one record.
"""

from collections.abc import Iterator
from typing import Any

from bench.words.cases import Case

NAMES = (
    "Gus Lund", "Ada Byrne", "Bo van der Berg", "Cy Dorn", "Di Ek", "Eva Maria Fox", "Finn O'Hara",
    "Gil Roth", "Hana Sato", "Ivo Jansen", "Jo Ann Kerr", "Kit Moss", "Lea Noor", "Max de Wit",
    "Nia Owen", "Olaf Pohl", "Pia Quist", "Rosa Lee Tran", "Sam Usher", "Tess Vos", "Uma Wolf",
    "Vic Young", "Will Zane", "Yara El Amin",
)  # fmt: skip
TOWNS = (
    "Bath", "St Ives", "Bude", "Castle Combe", "Deal", "Ely", "Stow on the Wold", "Frome", "Goole",
    "Haworth", "Ilkley", "King's Lynn", "Leek", "Market Rasen", "Newquay", "Oban", "Great Yarmouth",
    "Rye", "Settle", "Tring", "Upton upon Severn", "Ventnor", "Wells", "York",
)  # fmt: skip
BRANCHES = ("quayside", "millfield", "old town", "north gate")
ROOMS = ("garden", "tower", "sea view", "corner")
WORDINGS = {
    "cancel_booking": (
        "I'm {first} ({email}), please cancel {booking}",
        "Hello, {name} here. Booking {booking} can go, my mail is {email}.",
        "Cancel {booking} for {email} and give back the {price}.",
        "{email}: drop the {room} room of {booking}, we were to stay {nights} nights",
    ),
    "renew_card": (
        "Reader {card}, {name}: renew until {until}.",
        "Please renew the card {card} of the {branch} branch until {until}",
        "{name} would like card {card} to run until {until} (fee {fee})",
        "Card {card} until {until}. I am {first}.",
    ),
    "forward_post": (
        "Forward the post of {name} to {town}",
        "{name} has moved; post goes to {town} from now on.",
        "Post for {name} ({flat}) should go to {town}, please",
        "We at {flat}, {name}: please send our post on to {town}.",
    ),
}


def _row(number: int) -> Case:
    name = NAMES[number]
    return {
        "name": name,
        "first": name.split()[0],
        "email": f"{name.split()[0].lower()}.{number}@mail.example",
        "booking": f"HB-{4100 + 37 * number}",
        "price": 140 + 7 * number,
        "room": ROOMS[number % len(ROOMS)],
        "nights": 2 + number % 5,
        "card": f"R{70411 + 913 * number}",
        "branch": BRANCHES[number % len(BRANCHES)],
        "fee": 12 + number % 3,
        "until": f"2027-{1 + number % 12:02}-{1 + number % 27:02}",
        "flat": f"{3 + number}{'abc'[number % 3]}",
        "town": TOWNS[number],
        "guest_id": f"g{number}",
        "tenant_id": f"t{number}",
    }


def _calls(kind: str, row: Case) -> list[tuple[str, Case, Case]]:
    """Return the reads for a request: tool, arguments, result."""
    if kind == "cancel_booking":
        guest = {"bookings": [row["booking"], f"{row['booking']}-B"], "city": row["town"]}
        booking = {name: row[name] for name in ("guest_id", "room", "nights", "price")}
        return [
            ("find_guest", {"email": row["email"]}, {**_of(row, "guest_id name email"), **guest}),
            ("get_booking", {"booking_id": row["booking"]},
             {"booking_id": row["booking"], "status": "open", **booking}),
        ]  # fmt: skip
    if kind == "renew_card":
        return [("find_reader", {"card": row["card"]}, _of(row, "card name branch fee"))]
    return [("find_tenant", {"name": row["name"]}, _of(row, "tenant_id name flat email"))]


def _of(row: Case, names: str) -> Case:
    return {name: row[name] for name in names.split()}


def _written(kind: str, row: Case) -> Case:
    if kind == "cancel_booking":
        return {"booking_id": row["booking"], "refund": row["price"]}
    if kind == "renew_card":
        return {"card": row["card"], "until": row["until"]}
    return {"tenant_id": row["tenant_id"], "to": row["town"]}


def kinds() -> Iterator[Case]:
    """Yield each kind, in the form of those of the domains. `reads` are the calls of a case."""
    rows = [_row(number) for number in range(len(NAMES))]
    half = len(rows) // 2
    for name, wordings in WORDINGS.items():
        cases = [
            {
                "request": wording.format(**row),
                "inputs": _written(name, row),
                "reads": _calls(name, row),
            }
            for place, wording in enumerate(wordings)
            for row in (*rows[place:half:4], *rows[half + place :: 4])
        ]
        each = len(cases) // len(wordings)
        parts: dict[str, list[Any]] = {"recorded": [], "fresh": []}
        for place, case in enumerate(cases):
            parts["recorded" if place % each < each // 2 else "fresh"].append(case)
        yield {"name": name, **parts}
