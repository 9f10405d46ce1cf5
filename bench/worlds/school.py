"""A school office: students, absences, electives and trips."""

import random
from datetime import date, timedelta

from bench.worlds.world import Facts, Kind, Row, World, need, only, optional, tables, words

FIRST = "Mia Noah Lena Omar Ivy Jonas Aisha Felix Clara Mateo Zoe Hugo Nora".split()
LAST = "Berg Castillo Novak Ahmed Lund Fischer Tanaka Owusu Keller Marino".split()
PARENTS = ["Ruth", "Pavel", "Ines", "Karl", "Amina", "Tom"]
GROUPS = ["6A", "6B", "7A", "7B", "8A", "8B"]
ELECTIVES = "Pottery,Chess,Robotics,Choir,Theatre,Gardening,Judo,Film Club".split(",")
TRIPS = (
    "Planetarium Visit,Harbour Walk,Science Fair,Opera Rehearsal,Forest Day,Castle Tour,"
    "Climbing Hall,Newspaper Printing House,Botanic Garden,Robot Museum,Harbour Walk by Night"
).split(",")
PLACES = ["main gate", "bus stop Elm Road", "sports hall", "central station, platform 3"]
REASONS = {"illness": "ILL", "appointment": "APP", "family": "FAM", "competition": "CMP"}


class School(World):
    """The school's records in the spring of 2027."""

    NAME = "school"
    READS = words(
        "find_student_by_email find_students get_student get_guardian list_terms list_reasons "
        "list_absences get_calendar list_enrolments find_courses list_sections find_trips "
        "list_signups"
    )
    WRITES = words("record_absence drop_enrolment enrol sign_up send_message")
    TABLES = tables(
        "students student_id ST, guardians guardian_id GU, terms term_id TE, reasons code RE, "
        "absences absence_id AB, calendar today DA, courses course_id CO, "
        "sections section_id SE, enrolments enrolment_id EN, trips trip_id TR, "
        "signups reference SU, messages message_id ME"
    )

    def __init__(self) -> None:
        super().__init__()
        rng = random.Random(202)
        self.add("calendar", today="2027-03-01", elective_changes_until="2027-03-12")
        self.add("terms", starts="2026-08-24", ends="2026-12-18")
        self.add("terms", starts="2027-01-11", ends="2027-03-19")
        self.add("terms", starts="2027-04-05", ends="2027-06-25")
        for label, code in REASONS.items():
            self.add("reasons", code=code, label=label)
        names = rng.sample([(first, last) for first in FIRST for last in LAST], 75)
        for first, last in names + names[:15]:
            self._add_student(rng, first, last)
        for student in rng.sample(self.where("students"), 45):
            row = {"student_id": student["student_id"], "term_id": "TE-1002", "note": ""}
            day = f"2027-02-{rng.randrange(1, 27):02}"
            self.add("absences", **row, date=day, code=rng.choice(list(REASONS.values())))
        self._build_courses(rng)
        for title in TRIPS:
            day = f"2027-{rng.choice(['04', '05', '06'])}-{rng.randrange(10, 25)}"
            where = {"date": day, "meeting_point": rng.choice(PLACES)}
            left = rng.randrange(6, 30)
            trip = self.add("trips", title=title, **where, places_left=left, status="open")
            for row in rng.sample(self.where("students"), rng.randrange(0, 5)):
                self.add("signups", trip_id=trip["trip_id"], student_id=row["student_id"])

    def _add_student(self, rng: random.Random, first: str, last: str) -> None:
        guardian = f"{rng.choice(PARENTS)} {last}"
        address = f"{guardian.lower().replace(' ', '.')}{rng.randrange(100, 999)}@mail.example"
        same = self.where("students", name=f"{first} {last}")
        groups = [group for group in GROUPS if all(row["group"] != group for row in same)]
        born = date(rng.randrange(2012, 2016), rng.randrange(1, 13), rng.randrange(1, 29))
        family = self.add("guardians", name=guardian, email=address, trip_consent=True)
        self.add(
            "students",
            name=f"{first} {last}",
            email=f"{first}.{last}{len(same) + 1 if same else ''}@pupils.example".lower(),
            born=born.isoformat(),
            group=rng.choice(groups),
            guardian_id=family["guardian_id"],
            status="left" if rng.random() < 0.06 else "enrolled",
            fee_hold=rng.random() < 0.06,
        )

    def _build_courses(self, rng: random.Random) -> None:
        for title in ELECTIVES:
            course_id = self.add("courses", title=title)["course_id"]
            for weekday in rng.sample(["Monday", "Tuesday", "Wednesday", "Thursday"], 3):
                place = {"weekday": weekday, "room": f"R{rng.randrange(100, 130)}", "seats": 14}
                self.add("sections", course_id=course_id, **place, taken=rng.randrange(9, 15))
        for student in self.where("students"):
            for course in rng.sample(self.where("courses"), 2):
                section = rng.choice(self.where("sections", course_id=course["course_id"]))
                self.add_enrolment(student["student_id"], section["section_id"])

    def add_enrolment(self, student_id: str, section_id: str) -> Row:
        course = self.get("courses", self.get("sections", section_id)["course_id"])["title"]
        names = {"student_id": student_id, "section_id": section_id, "course": course}
        return self.add("enrolments", **names, status="active")

    # Read tools

    def find_student_by_email(self, email: str) -> Row:
        row = self.pick("students", email=email)
        return {"student_id": row["student_id"], "name": row["name"]}

    def find_students(self, name: str) -> list[Row]:
        return self.search("students", "name", name, "student_id", "name", "born", "group")

    def get_student(self, student_id: str) -> Row:
        return self.get("students", student_id)

    def get_guardian(self, guardian_id: str) -> Row:
        return self.get("guardians", guardian_id)

    def list_terms(self) -> list[Row]:
        return self.where("terms")

    def list_reasons(self) -> list[Row]:
        return self.where("reasons")

    def list_absences(self, student_id: str) -> list[Row]:
        return self.where("absences", student_id=student_id)

    def get_calendar(self) -> Row:
        return self.pick("calendar")

    def list_enrolments(self, student_id: str) -> list[Row]:
        return self.where("enrolments", student_id=student_id)

    def find_courses(self, title: str) -> list[Row]:
        return self.search("courses", "title", title, "course_id", "title")

    def list_sections(self, course_id: str) -> list[Row]:
        return self.where("sections", course_id=course_id)

    def find_trips(self, title: str) -> list[Row]:
        shown = ("trip_id", "title", "date", "meeting_point", "places_left", "status")
        return self.search("trips", "title", title, *shown)

    def list_signups(self, trip_id: str) -> list[Row]:
        return self.where("signups", trip_id=trip_id)

    # Write tools

    def record_absence(
        self, student_id: str, term_id: str, date: str, code: str, note: str = ""
    ) -> Row:
        self.get("students", student_id)
        names = {"term_id": self.get("terms", term_id)["term_id"], "date": self.iso(date)}
        reason = self.get("reasons", code)["code"]
        return self.add("absences", student_id=student_id, **names, code=reason, note=note)

    def drop_enrolment(self, enrolment_id: str) -> Row:
        row = self.get("enrolments", enrolment_id)
        row["status"] = "dropped"
        self.get("sections", row["section_id"])["taken"] -= 1
        return row

    def enrol(self, student_id: str, section_id: str) -> Row:
        self.get("students", student_id)
        self.get("sections", section_id)["taken"] += 1
        return self.add_enrolment(student_id, section_id)

    def sign_up(self, trip_id: str, student_id: str) -> Row:
        self.get("students", student_id)
        self.get("trips", trip_id)["places_left"] -= 1
        return self.add("signups", trip_id=trip_id, student_id=student_id)

    def send_message(self, to: str, subject: str, text: str) -> Row:
        return self.add("messages", to=to, subject=subject, characters=len(text))


BASE = School()


# Record an absence; the student is given by e-mail, or by name and birth date.
def _absence_facts(number: int) -> Facts:
    rng = random.Random(f"record_absence/{number}")
    student = rng.choice(BASE.where("students", status="enrolled"))
    term = rng.choice(BASE.where("terms")[1:])
    while True:
        day = date.fromisoformat(term["starts"]) + timedelta(days=rng.randrange(80))
        known = BASE.where("absences", student_id=student["student_id"], date=day.isoformat())
        if day.weekday() < 5 and day.isoformat() <= term["ends"] and not known:
            break
    who = ("email",) if rng.random() < 0.5 else ("name", "born")
    rest = {"date": day.isoformat(), "reason": rng.choice(list(REASONS))}
    if rng.random() < 0.4:
        rest["note"] = rng.choice(["Doctor's letter follows", "Called at 7:40", "Back next day"])
    return {**optional(student, *who), **rest}


def _solve_absence(world: School, facts: Facts, variant: int) -> None:
    if variant % 5 == 4:
        terms = world.call("list_terms")
    if "email" in facts:
        if variant % 6 == 1:
            world.stumble("get_student", student_id=facts["email"])
        found = world.call("find_student_by_email", email=facts["email"])
    else:
        need("name" in facts and "born" in facts, "the student is not identified")
        rows = world.call("find_students", name=facts["name"])
        found = only(rows, name=facts["name"], born=facts["born"])
    student = world.call("get_student", student_id=found["student_id"])
    need(student["status"] == "enrolled", "not enrolled")
    if variant % 7 == 3:
        world.call("get_guardian", guardian_id=student["guardian_id"])
    earlier = world.call("list_absences", student_id=student["student_id"])
    need(all(row["date"] != facts["date"] for row in earlier), "recorded already")
    if variant % 5 != 4:
        terms = world.call("list_terms")
    inside = [row for row in terms if row["starts"] <= facts["date"] <= row["ends"]]
    need(len(inside) == 1, "outside of the terms")
    code = only(world.call("list_reasons"), label=facts["reason"])["code"]
    args = {"student_id": student["student_id"], "term_id": inside[0]["term_id"], "code": code}
    if variant % 11 == 5:
        world.stumble("record_absence", **args, date=facts["date"].replace("-", "/"))
    world.call("record_absence", **args, date=facts["date"], **optional(facts, "note"))


ABSENCE_WORDS = (
    "Record an absence on {date} for {who}; reason: {reason}.{note}",
    "{who} is away on {date} ({reason}). Please enter it.{note}",
    "Absence: {who}, {date}, {reason}.{note}",
    "Please note that {who} does not come on {date} because of {reason}.{note}",
)
ABSENCE = Kind(
    "record_absence",
    School,
    _absence_facts,
    _solve_absence,
    ABSENCE_WORDS,
    lambda f: {
        "who": f"{f['name']} (born {f['born']})" if "name" in f else f.get("email", "a student"),
        "note": f" Note: {f['note']}." if "note" in f else "",
    },
)


def _student(world: School, facts: Facts) -> Row:
    return world.pick("students", **optional(facts, "email", "name", "born"))


def _add_absence(world: School, facts: Facts) -> None:
    student_id = _student(world, facts)["student_id"]
    world.record_absence(student_id, "TE-1002", facts["date"], "FAM")


def _twin_student(world: School, facts: Facts) -> None:
    new = {"student_id": "ST-9001", "email": "x9001@pupils.example"}
    world.add("students", **{**_student(world, facts), **new})


ABSENCE.trap("outside of the terms", differ=lambda f: {"date": "2027-07-20"})
ABSENCE.trap("student has left", lambda w, f: _student(w, f).update(status="left"))
ABSENCE.trap("unknown reason", differ=lambda f: {"reason": "shopping"})
ABSENCE.trap("recorded already", _add_absence)
ABSENCE.trap("another birth date", None, lambda f: {"born": "2011-02-28"}, lambda f: "born" in f)
ABSENCE.trap("two students fit", _twin_student, where=lambda f: "born" in f)
ABSENCE.trap("nobody is named", None, lambda f: {"email": None}, lambda f: "email" in f)


# Change from one elective to another; the weekday says which section.
def _elective_facts(number: int) -> Facts:
    rng = random.Random(f"change_elective/{number}")
    student = BASE.where("students", status="enrolled", fee_hold=False)[number]
    mine = [row["course"] for row in BASE.list_enrolments(student["student_id"])]
    while True:
        section = rng.choice(BASE.where("sections"))
        wanted = BASE.get("courses", section["course_id"])["title"]
        if section["taken"] < section["seats"] and wanted not in mine:
            courses = {"from_course": rng.choice(mine), "to_course": wanted}
            return {"email": student["email"], **courses, "weekday": section["weekday"]}


def _solve_elective(world: School, facts: Facts, variant: int) -> None:
    title = facts["to_course"]
    if variant % 3 == 2:
        calendar = world.call("get_calendar")
    if variant % 4 == 1:
        course = only(world.call("find_courses", title=title), title=title)
    found = world.call("find_student_by_email", email=facts["email"])
    student = world.call("get_student", student_id=found["student_id"])
    need(student["status"] == "enrolled" and student["fee_hold"] is False, "student on hold")
    enrolled = world.call("list_enrolments", student_id=student["student_id"])
    active = [row for row in enrolled if row["status"] == "active"]
    need(all(row["course"] != title for row in active), "enrolled already")
    old = only(active, course=facts["from_course"])
    if variant % 4 != 1:
        course = only(world.call("find_courses", title=title), title=title)
    sections = world.call("list_sections", course_id=course["course_id"])
    section = only(sections, weekday=facts["weekday"])
    need(section["taken"] < section["seats"], "section full")
    if variant % 3 != 2:
        calendar = world.call("get_calendar")
    need(calendar["today"] <= calendar["elective_changes_until"], "too late for changes")
    if variant % 9 == 6:
        world.stumble("drop_enrolment", enrolment_id=old["section_id"])
    world.call("drop_enrolment", enrolment_id=old["enrolment_id"])
    names = {"student_id": student["student_id"], "section_id": section["section_id"]}
    world.call("enrol", **names)


ELECTIVE_WORDS = (
    "Please move {email} from {from_course} to {to_course} on {weekday}.",
    "{email} wants to leave {from_course} and join the {weekday} group of {to_course}.",
    "Elective change for {email}: {from_course} out, {to_course} ({weekday}) in.",
    "Swap {from_course} for {to_course}, {weekday}, student {email}.",
)
ELECTIVE = Kind("change_elective", School, _elective_facts, _solve_elective, ELECTIVE_WORDS)


def _wanted_section(world: School, facts: Facts) -> Row:
    course_id = world.pick("courses", title=facts["to_course"])["course_id"]
    return world.pick("sections", course_id=course_id, weekday=facts["weekday"])


def _enrol_already(world: School, facts: Facts) -> None:
    section_id = _wanted_section(world, facts)["section_id"]
    world.add_enrolment(_student(world, facts)["student_id"], section_id)


def _drop_old(world: School, facts: Facts) -> None:
    wanted = {"student_id": _student(world, facts)["student_id"], "course": facts["from_course"]}
    world.pick("enrolments", **wanted)["status"] = "dropped"


ELECTIVE.trap("section full", lambda w, f: _wanted_section(w, f).update(taken=14))
ELECTIVE.trap("enrolled already", _enrol_already)
ELECTIVE.trap("fee hold", lambda w, f: _student(w, f).update(fee_hold=True))
ELECTIVE.trap("old course dropped already", _drop_old)
ELECTIVE.trap("after the deadline", lambda w, f: w.pick("calendar").update(today="2027-03-13"))
ELECTIVE.trap("no section on that day", differ=lambda f: {"weekday": "Sunday"})


# Sign several students up for a trip and write to their guardians.
def _trip_facts(number: int) -> Facts:
    rng = random.Random(f"trip_signup/{number}")
    trip = rng.choice(BASE.where("trips"))
    signed = [row["student_id"] for row in BASE.list_signups(trip["trip_id"])]
    free = [r for r in BASE.where("students", status="enrolled") if r["student_id"] not in signed]
    chosen = rng.sample(free, rng.randint(1, 4))
    students = [optional(row, "name", "group") for row in chosen]
    facts: Facts = {"trip": trip["title"], "students": students}
    if rng.random() < 0.4:
        facts["bring"] = rng.choice(["rain jacket", "packed lunch", "old shoes", "a notebook"])
    return facts


def _solve_trip(world: School, facts: Facts, variant: int) -> None:
    wanted = facts["students"]
    need(wanted, "no students")
    searched = facts["trip"].split()[0] if variant % 6 == 2 else facts["trip"]
    trip = only(world.call("find_trips", title=searched), title=facts["trip"])
    need(trip["status"] == "open" and trip["places_left"] >= len(wanted), "closed or full")
    signed = world.call("list_signups", trip_id=trip["trip_id"])
    if variant % 8 == 5:
        world.call("get_calendar")
    people: list[tuple[Row, Row]] = []
    for who in wanted:
        found = only(world.call("find_students", name=who["name"]), **who)
        student = world.call("get_student", student_id=found["student_id"])
        need(student["status"] == "enrolled", "not enrolled")
        need(all(r["student_id"] != found["student_id"] for r in signed), "signed up already")
        need(all(s["student_id"] != found["student_id"] for s, _ in people), "listed twice")
        guardian = world.call("get_guardian", guardian_id=student["guardian_id"])
        need(guardian["trip_consent"] is True, "no consent")
        people.append((student, guardian))
    if variant % 9 == 1:
        world.stumble("sign_up", trip_id=facts["trip"], student_id=people[0][0]["student_id"])
    for student, guardian in people:
        names = {"trip_id": trip["trip_id"], "student_id": student["student_id"]}
        reference = world.call("sign_up", **names)["reference"]
        text = (
            f"Dear {guardian['name']}, {student['name']} is signed up for {trip['title']} on "
            f"{trip['date']}. Reference: {reference}. Meeting point: {trip['meeting_point']}."
        )
        if "bring" in facts:
            text += f" Please bring: {facts['bring']}."
        subject = f"{trip['title']}: {student['name']}"
        world.call("send_message", to=guardian["email"], subject=subject, text=text)


TRIP_WORDS = (
    "Sign up {students} for the {trip} and tell their guardians.{bring}",
    "{students} want to join: {trip}. Please register them and write to the parents.{bring}",
    "Trip {trip}: add {students}; a confirmation goes to each guardian.{bring}",
    "Please put {students} on the list of the {trip} and inform every family.{bring}",
)
TRIP = Kind(
    "trip_signup",
    School,
    _trip_facts,
    _solve_trip,
    TRIP_WORDS,
    lambda f: {
        "students": " and ".join(f"{who['name']} ({who['group']})" for who in f["students"]),
        "bring": f" They should bring: {f['bring']}." if "bring" in f else "",
    },
)


def _trip(world: School, facts: Facts) -> Row:
    return world.pick("trips", title=facts["trip"])


def _last_student(world: School, facts: Facts) -> Row:
    return world.pick("students", **facts["students"][-1])


def _refuse_consent(world: School, facts: Facts) -> None:
    guardian_id = _last_student(world, facts)["guardian_id"]
    world.get("guardians", guardian_id)["trip_consent"] = False


def _sign_up_already(world: School, facts: Facts) -> None:
    world.sign_up(_trip(world, facts)["trip_id"], _last_student(world, facts)["student_id"])


TRIP.trap("no consent", _refuse_consent)
TRIP.trap(
    "too few places",
    lambda w, f: _trip(w, f).update(places_left=1),
    where=lambda f: len(f["students"]) > 1,
)
TRIP.trap("trip cancelled", lambda w, f: _trip(w, f).update(status="cancelled"))
TRIP.trap("student listed twice", differ=lambda f: {"students": f["students"] * 2})
TRIP.trap("signed up already", _sign_up_already)
TRIP.trap("no students", differ=lambda f: {"students": []})

KINDS = [ABSENCE, ELECTIVE, TRIP]
