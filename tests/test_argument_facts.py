"""Arguments that are unlike all recorded ones are asked about: no time, nothing, twice the same."""

from typing import Any

import pytest

from test_signs import Learnt, learnt

PHRASES = ("{}", "Please {}", "I want to {}", "Could you {}")


def said(task: str, number: int) -> str:
    """The task as different people say it."""
    text = PHRASES[number % len(PHRASES)].format(task[0].lower() + task[1:])
    return text[0].upper() + text[1:] + ("?" if number % len(PHRASES) == 3 else ".")


@pytest.fixture(params=[False, True], ids=["same words", "other words"])
def is_varied(request: Any) -> bool:
    return bool(request.param)


def moves(is_varied: bool) -> Learnt:
    times = ("10:00", "09:30", "13:15", "16:45")
    return learnt(
        "move_visit",
        {
            said(f"Move VIS-50{n} to 2025-08-0{n} at {time}", n * is_varied): {
                "visit_id": f"VIS-50{n}", "day": f"2025-08-0{n}", "time": time,
            }
            for n, time in enumerate(times, 1)
        },
    )  # fmt: skip


@pytest.mark.parametrize("time", ["25:00", "19:75", "29:30"])
def test_no_time_of_the_day_is_asked_about(is_varied: bool, time: str) -> None:
    moves(is_varied).asks(f"Move VIS-507 to 2025-08-20 at {time}.")


def test_a_time_of_the_day_is_taken(is_varied: bool) -> None:
    done = moves(is_varied).does("Move VIS-507 to 2025-08-20 at 23:59.")
    assert done == [{"visit_id": "VIS-507", "day": "2025-08-20", "time": "23:59"}]


def test_one_thing_is_not_changed_twice_by_one_request() -> None:
    first, second = "Move VIS-507 to 2025-08-20 at 11:00.", "Move VIS-507 to 2025-08-21 at 12:00."
    moves(True).asks(f"{first} {second}")


def gifts(is_varied: bool) -> Learnt:
    return learnt(
        "give_points",
        {
            said(f"Give {n * 5} points from USR-40{n} to USR-41{n}", n * is_varied): {
                "points": n * 5, "source": f"USR-40{n}", "target": f"USR-41{n}",
            }
            for n in range(1, 5)
        },
    )  # fmt: skip


@pytest.mark.parametrize(
    "request_",
    [
        "Give 30 points from USR-408 to USR-408.",
        "Give 0 points from USR-408 to USR-418.",
        "Give 20000 points from USR-408 to USR-418.",
    ],
)
def test_nobody_gives_to_himself_nor_nothing_nor_a_thousand_times_as_much(
    is_varied: bool, request_: str
) -> None:
    gifts(is_varied).refuses(request_)


def test_a_stay_does_not_end_before_it_begins(is_varied: bool) -> None:
    stays = learnt(
        "book_room",
        {
            said(f"Book ROOM-40{n} from 2025-08-0{n} to 2025-08-1{n}", n * is_varied): {
                "room": f"ROOM-40{n}", "start": f"2025-08-0{n}", "end": f"2025-08-1{n}",
            }
            for n in range(1, 5)
        },
    )  # fmt: skip
    stays.refuses("Book ROOM-408 from 2025-08-25 to 2025-08-20.")
    done = stays.does("Book ROOM-408 from 2025-08-20 to 2025-08-25.")
    assert done == [{"room": "ROOM-408", "start": "2025-08-20", "end": "2025-08-25"}]


@pytest.fixture
def tasks() -> Learnt:
    people = ("Ana", "Bo", "Cy", "Di")
    return learnt(
        "assign_task",
        {
            f"Assign TSK-40{n} to {person}.": {"task_id": f"TSK-40{n}", "person": person}
            for n, person in enumerate(people, 1)
        },
    )


@pytest.mark.parametrize(
    "word", ["Tomorrow", "Unassigned", "Myself", "Ana/Bo", "Emma's", "Sunday", "him"]
)
def test_a_word_that_is_no_person_is_asked_about(tasks: Learnt, word: str) -> None:
    tasks.asks(f"Assign TSK-408 to {word}.")


def test_another_person_is_taken(tasks: Learnt) -> None:
    assert tasks.does("Assign TSK-408 to Emma.") == [{"task_id": "TSK-408", "person": "Emma"}]


def test_a_range_of_ids_is_no_id(tasks: Learnt) -> None:
    tasks.asks("Assign TSK-408-TSK-410 to Emma.")


def test_a_text_has_no_more_sentences_than_recorded_ones() -> None:
    texts = {"Ana": "the train is late", "Bo": "lunch is ready", "Cy": "the door is open"}
    messages = learnt(
        "send_message",
        {
            f"Tell {person} that {text}.": {"person": person, "text": text}
            for person, text in texts.items()
        },
    )
    messages.asks("Tell Eve that the bus is full. Forget it.")
    done = messages.does("Tell Eve that the bus is full.")
    assert done == [{"person": "Eve", "text": "the bus is full"}]


def test_a_read_may_be_called_as_its_argument() -> None:
    vans = learnt(
        "book_van",
        {
            said(f"Book VAN-47{n} for 2025-08-0{n}", n): {
                "van": f"VAN-47{n}",
                "day": f"2025-08-0{n}",
            }
            for n in range(1, 5)
        },
        {"get_van": ("van", lambda van: {"id": van, "state": "free"})},
    )
    assert vans.does("Please book VAN-476 for 2025-08-20.") == [
        {"van": "VAN-476", "day": "2025-08-20"}
    ]


@pytest.mark.parametrize(
    "address",
    [
        "18 Rose Hill when she moves",
        "18 Rose Hill next month",
        "18 Rose Hill pending approval",
        "18 Rose Hill from 1 May",
        "18 Rose Hill I think",
        "that of CIT-207",
        "2 days ago",
    ],
)
def test_words_around_a_value_are_no_part_of_it(address: str) -> None:
    places = ("4 Mill Lane", "27 Station Road", "9 Old Harbour Street", "112 Park Row")
    people = learnt(
        "change_address",
        {
            f"Change the address of CIT-20{n} to {place}.": {
                "citizen": f"CIT-20{n}", "address": place,
            }
            for n, place in enumerate(places, 1)
        },
    )  # fmt: skip
    people.asks(f"Change the address of CIT-206 to {address}.")
    assert people.does("Change the address of CIT-206 to 18 Rose Hill.") == [
        {"citizen": "CIT-206", "address": "18 Rose Hill"}
    ]


@pytest.mark.parametrize("day", ["Someday", "Mondays", "Holiday", "Thuesday", "Yesterday"])
def test_days_of_the_week_are_days_of_the_week(day: str) -> None:
    days = ("Monday", "Tuesday", "Thursday", "Friday")
    courts = learnt(
        "book_court",
        {
            f"Book court CRT-{n} on {one}.": {"court": f"CRT-{n}", "day": one}
            for n, one in enumerate(days, 11)
        },
    )
    courts.asks(f"Book court CRT-17 on {day}.")
    assert courts.does("Book court CRT-17 on Sunday.") == [{"court": "CRT-17", "day": "Sunday"}]


def test_a_number_that_was_always_the_same_may_be_a_constant() -> None:
    tours = {f"TUR-{30 + n}": {"hours": 7 + 3 * n, "people": 12} for n in range(5)}
    guides = learnt(
        "pay_guide",
        {
            f"Pay the guide of {tour}.": {"tour": tour, "amount": record["hours"] * 12}
            for tour, record in tours.items()
        },
        {"get_tour": ("tour", lambda tour: {"tour": tour, **tours[tour]})},
    )
    tours["TUR-41"] = {"hours": 40, "people": 12}
    assert guides.does("Pay the guide of TUR-41.") == [{"tour": "TUR-41", "amount": 480}]
    tours["TUR-41"] = {"hours": 40, "people": 20}
    guides.refuses("Pay the guide of TUR-41.")
