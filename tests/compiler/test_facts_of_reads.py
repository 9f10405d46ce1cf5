"""What all recordings saw before they wrote must be so again, for every kind of read."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from em.runner.card import public_form
from recorded_world import World

DAYS = ("2025-08-01", "2025-08-02", "2025-08-03", "2025-08-04")
NEXT = {"room_id": "ROOM-408", "day": "2025-08-20"}


def booking(
    path: Path,
    result: Callable[..., Any],
    *,
    count: int = 4,
    ids: str = "ROOM-40{}",
    read_with: Sequence[str] = ("room_id",),
) -> World:
    """Return a world in which rooms are looked at and booked."""
    world = World(path)
    world.read("get_room", read_with, result)
    world.write("book_room", ("room_id", "day"))
    tasks = []
    for number in range(count):
        given = {"room_id": ids.format(number + 1), "day": DAYS[number]}
        looked = ("get_room", *(given[name] for name in read_with))
        tasks.append((given, [looked, ("book_room", *given.values())]))
    world.learn(tasks)
    return world


BOTH = ("room_id", "day")
Case = tuple[Callable[..., Any], Sequence[str]]
CASES: dict[str, Case] = {
    "a flag": (lambda room, day, new: not new, BOTH),
    "a state": (lambda room, new: "closed" if new else "available", ("room_id",)),
    "a count": (lambda room, day, new: 3 if new else 0, BOTH),
    "a list that was empty": (lambda room, day, new: [{"booking": "BK-1"}] if new else [], BOTH),
    "a list that was not empty": (lambda room, new: [] if new else ["projector"], ("room_id",)),
    "a field that was empty": (
        lambda room, new: {"room": room, "complaints": ["flooded"] if new else []},
        ("room_id",),
    ),
    "a field that was not empty": (
        lambda room, new: {"room": room, "permits": [] if new else ["P-1"]},
        ("room_id",),
    ),
    "a new text": (
        lambda room, new: {"room": room, **({"access": "read-only"} if new else {})},
        ("room_id",),
    ),
    "a text": (
        lambda room, new: f"Room {room} is {'closed' if new else 'open'}.",
        ("room_id",),
    ),
    "words in another order": (
        lambda room, new: "closed, not open" if new else "open, not closed",
        ("room_id",),
    ),
    "an error": (
        lambda room, new: {"error": "no such room"} if new else {"room": room},
        ("room_id",),
    ),
    "nothing": (lambda room, new: None if new else {"room": room}, ("room_id",)),
    "a text of JSON": (
        lambda room, new: f'{{"room": "{room}", "state": "{"shut" if new else "free"}"}}',
        ("room_id",),
    ),
    "a flag deep inside": (
        lambda room, new: {"room": room, "info": {"doors": {"main": {"open": not new}}}},
        ("room_id",),
    ),
}


# From one recording it can't be known whether a new field matters.
@pytest.mark.parametrize(
    ("case", "count"),
    [(case, count) for case in CASES for count in (1, 4) if (case, count) != ("a new text", 1)],
)
def test_what_was_read_before_a_write_must_be_so_again(
    tmp_path: Path, count: int, case: str
) -> None:
    result, read_with = CASES[case]
    world = booking(tmp_path, result, count=count, read_with=read_with)
    world.refuses(NEXT, changed=True)
    world.does(NEXT, ("ROOM-408", "2025-08-20"))


MORE: dict[str, Callable[..., Any]] = {
    "a flag of a member of a list": lambda room, new: [{"booking_id": "BK-1", "is_over": not new}],
    "a word of a list": lambda room, new: {
        "room": room,
        "tags": ["do-not-book"] if new else ["quiet"],
    },
    "the same owner each time": lambda room, new: {"room": room, "owner": "Ben" if new else "Ana"},
}


@pytest.mark.parametrize("case", MORE)
def test_what_several_recordings_saw_inside_of_a_result_must_be_so_again(
    tmp_path: Path, case: str
) -> None:
    world = booking(tmp_path, MORE[case])
    world.refuses(NEXT, changed=True)
    world.does(NEXT, ("ROOM-408", "2025-08-20"))


@pytest.mark.parametrize("ids", ["R{}", "1{}", "#1{}", "VAN-{}"])
def test_a_read_by_a_short_id_is_made_before_the_write(tmp_path: Path, ids: str) -> None:
    world = booking(
        tmp_path, lambda room, new: {"room": room, "state": "closed" if new else "free"}, ids=ids
    )
    given = {"room_id": ids.format(8), "day": "2025-08-20"}
    world.refuses(given, changed=True)
    world.does(given, (ids.format(8), "2025-08-20"))


def test_a_read_without_arguments_is_made_before_the_write(tmp_path: Path) -> None:
    world = booking(tmp_path, lambda new: {"bookings": "closed" if new else "open"}, read_with=())
    world.refuses(NEXT, changed=True)
    world.does(NEXT, ("ROOM-408", "2025-08-20"))


def test_a_day_stays_before_the_end_that_a_record_has(tmp_path: Path) -> None:
    ends = ("2025-08-09", "2025-12-31", "2025-10-04", "2025-09-17")

    def room(room_id: str, new: bool) -> Any:
        number = int(room_id[-1]) - 1
        until = ends[number] if number < len(ends) else "2025-08-19" if new else "2025-12-30"
        return {"room": room_id, "until": until}

    world = booking(tmp_path, room)
    world.refuses(NEXT, changed=True)
    world.does(NEXT, ("ROOM-408", "2025-08-20"))


def test_an_amount_stays_within_what_a_record_says_there_is(tmp_path: Path) -> None:
    world = World(tmp_path)

    def account(account_id: str, is_new: bool) -> Any:
        return {"account_id": account_id, "funds_here": 49 if is_new else 80 + int(account_id[-1])}

    world.read("get_account", ("account_id",), account)
    world.write("withdraw", ("account_id", "amount"))
    world.learn(
        (
            {"account_id": f"AC-440{n}", "amount": n * 13},
            [("get_account", f"AC-440{n}"), ("withdraw", f"AC-440{n}", n * 13)],
        )
        for n in range(1, 7)
    )
    given = {"account_id": "AC-4408", "amount": 50}
    world.refuses(given, changed=True)
    world.does(given, ("AC-4408", 50))


def test_a_read_that_all_recordings_made_with_the_same_argument_is_made(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.read("get_rules", ("topic",), lambda topic, is_new: {"allowed": not is_new})
    world.write("book_room", ("room_id", "day"))
    world.learn(
        (
            {"room_id": f"ROOM-40{n}", "day": day},
            [("get_rules", "rooms"), ("book_room", f"ROOM-40{n}", day)],
        )
        for n, day in enumerate(DAYS)
    )
    world.refuses(NEXT, changed=True)
    world.does(NEXT, ("ROOM-408", "2025-08-20"))


def test_others_don_t_see_the_words_that_a_read_text_had_in_one_recording(tmp_path: Path) -> None:
    names = {"ROOM-401": "Anabel", "ROOM-402": "Benno", "ROOM-403": "Cleo", "ROOM-404": "Dora"}
    world = booking(tmp_path, lambda room, new: f"{names.get(room, 'Anabel')} keeps {room} open.")
    world.does(NEXT, ("ROOM-408", "2025-08-20"))
    public = str(public_form(world.routine, is_shared=True))
    assert not any(name.lower() in public.lower() for name in names.values())


def test_a_read_of_what_another_read_names_is_made_before_the_write(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.read(
        "get_visit", ("visit_id",), lambda visit, is_new: {"visit_id": visit, "who": f"P{visit}"}
    )
    world.read("get_patient", ("patient_id",), lambda who, is_new: {"allowed": not is_new})
    world.write("cancel_visit", ("visit_id",))
    visits = [f"A-500{n}" for n in range(3)]
    world.learn(
        (
            {"visit_id": visit},
            [("get_visit", visit), ("get_patient", f"P{visit}"), ("cancel_visit", visit)],
        )
        for visit in visits
    )
    world.refuses({"visit_id": "A-5008"}, changed=True)
    world.does({"visit_id": "A-5008"}, ("A-5008",))
