"""A payroll bureau: client companies, their staff, pay runs, leave, expenses and benefits."""

import random
import re
from calendar import monthrange
from collections.abc import Sequence
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

FIRST = [
    *("Ada", "Adam", "Mia", "Maria", "Ben", "Benita", "Carl", "Carla", "Noor", "Nora", "Ivo"),
    *("Ivan", "Lena", "Leo", "Mary Ann", "Ann", "Tom", "Tomas", "Ruth", "Pia", "Olga", "Hugo"),
]
LAST = [
    *("Adler", "Ames", "Brandt", "Brand", "Castell", "Cole", "Coleman", "Dahl", "Frey"),
    *("Freyer", "Grant", "Hill", "Moss", "Pohl"),
]
COMPANIES = [  # name, state of the contract with the bureau
    ("Alder Foods", "active"),
    ("Alder Foods Transport", "active"),
    ("Brock & Sons", "active"),
    ("Cobalt Print", "active"),
    ("Delta Joinery", "active"),
    ("Delta Joinery North", "active"),
    ("Elm Care", "active"),
    ("Fenwick Tools", "active"),
    ("Gable Roofing", "ended"),
]
DEPARTMENTS = ["Office", "Sales", "Workshop", "Field Sales", "Stores"]
CURRENT = ["active", "parental_leave"]
CATEGORIES = ["travel", "meals", "training", "small tools", "telephone"]
BENEFITS = ["health", "dental", "pension", "bicycle"]
BANDS = [(1, 3), (4, 6), (7, 9)]
THINGS = ["laptop", "phone", "door key", "van key", "tool case", "fuel card"]


def _later(day: str, days: int) -> str:
    return (date.fromisoformat(day) + timedelta(days=days)).isoformat()


class PayrollBureau(World):
    """The bureau in March 2027."""

    NAME = "payroll"
    READS = words(
        "find_companies get_company find_employees find_employee_by_email find_employee_by_number "
        "get_employee get_contract get_pay_run list_pay_runs list_leave_requests "
        "list_leave_balances list_claims get_claim list_pay_codes list_plans list_enrolments "
        "list_family list_advances list_equipment"
    )
    WRITES = words(
        "set_bank_account approve_leave reimburse_claim enrol cover_dependant end_employment "
        "pay_out_leave deduct_advance"
    )
    TABLES = tables(
        "companies company_id CO, employees employee_id EM, contracts contract_id CT, "
        "pay_runs run_id PR, requests request_id LR, balances balance_id LB, claims claim_id XC, "
        "pay_codes code PC, plans plan_id PL, enrolments enrolment_id EN, family member_id FM, "
        "advances advance_id AD, equipment item_id EQ, postings posting_id PO"
    )

    def __init__(self) -> None:
        super().__init__()
        rng = random.Random(909)
        for name, status in COMPANIES:
            self._add_company(rng, name, status)
        for company in list(self.db["companies"].values()):
            self._add_staff(rng, company)
        for employee in list(self.db["employees"].values()):
            self._add_leave(rng, employee)
            self._add_money(rng, employee)
            self._add_benefits(rng, employee)

    def _add_company(self, rng: random.Random, name: str, status: str) -> None:
        row = self.add("companies", name=name, status=status, pay_day=rng.choice([25, 28, 30]))
        key, short = row["company_id"], "".join(word[0] for word in name.split())
        if rng.random() < 0.3:
            row["note"] = rng.choice(["Slips by post", "Calls on Mondays"])
        march = rng.choice(["locked", "open"])
        states = ["paid", "paid", march, "open", "open", "open", "open"]
        for month, state in enumerate(states, start=1):
            text = f"2027-{month:02}"
            days = {"first_day": f"{text}-01", "last_day": f"{text}-{monthrange(2027, month)[1]}"}
            self.add("pay_runs", company_id=key, month=text, **days, status=state)
        for at, category in enumerate(rng.sample(CATEGORIES, len(CATEGORIES))):
            code = f"{short}{key[-1]}{310 + 10 * at + rng.randrange(0, 9)}"
            taxable = category in ("meals", "telephone")
            self.add("pay_codes", code=code, company_id=key, category=category, taxable=taxable)
        for benefit in BENEFITS:
            for low, high in BANDS:
                grades = {"from_grade": low, "to_grade": high}
                for year in rng.sample(range(2018, 2027), rng.choice([1, 1, 2])):
                    title = f"{benefit.title()} {year}"
                    self.add("plans", company_id=key, benefit=benefit, name=title, **grades)
                *old, new = self.where("plans", company_id=key, benefit=benefit, **grades)
                for plan in old:
                    plan["status"] = "closed"
                new["status"] = "open" if rng.random() < 0.88 else "closed"

    def _add_staff(self, rng: random.Random, company: Row) -> None:
        names = rng.sample([f"{first} {last}" for first in FIRST for last in LAST], 20)
        names += rng.sample(names, 4)  # namesakes, in another department
        for at, name in enumerate(names):
            key = company["company_id"]
            namesakes = self.where("employees", company_id=key, name=name)
            taken = [row["department"] for row in namesakes]
            row = self.add("employees", company_id=key, name=name, staff_no=str(204 + 7 * at))
            row["department"] = rng.choice([part for part in DEPARTMENTS if part not in taken])
            host = re.sub(r"[^a-z]", "", company["name"].lower())
            mail = name.lower().replace(" ", ".") + ("2" if taken else "")
            row["email"] = f"{mail}@{host}.example"
            row["status"] = rng.choice([*["active"] * 8, "parental_leave", "left"])
            row["manager"] = rng.choice([other for other in names if other != name])
            row["grade"] = rng.randint(1, 9)
            row["started"] = _later("2015-02-01", rng.randrange(0, 4300))
            row["benefits_from"] = _later(row["started"], rng.choice([90, 180]))
            row["bank"] = {"iban": self.iban(rng), "since": row["started"][:7]}
            row["bank_hold"] = rng.random() < 0.06
            self._add_contract(rng, row)

    def _add_contract(self, rng: random.Random, employee: Row) -> None:
        kind = rng.choice(["permanent", "permanent", "fixed_term", "casual"])
        pay: Row = {
            "day_rate": rng.randrange(180, 700) * 0.5,
            "hours": rng.choice([20, 30, 38, 40]),
        }
        pay["leave_pay"] = "rolled_up" if kind == "casual" else "at_end"
        end = _later("2027-03-10", rng.randrange(0, 80))
        key = employee["employee_id"]
        self.add("contracts", employee_id=key, type=kind, **pay, earliest_end=end)

    def _add_leave(self, rng: random.Random, employee: Row) -> None:
        key = employee["employee_id"]
        for kind, most in [("annual", 41), ("study", 13)]:
            left = 0 if rng.random() < 0.15 else rng.randrange(-1, most) * 0.5
            self.add("balances", employee_id=key, kind=kind, days_left=left)
        for _ in range(rng.randint(1, 4)):
            first = _later("2027-03-22", rng.randrange(0, 160))
            kind = rng.choice(["annual", "annual", "annual", "study"])
            status = rng.choice(["pending", "pending", "approved", "rejected", "withdrawn"])
            row = self.add_request(key, kind, first, rng.randint(1, 9), status)
            if status == "pending" and rng.random() < 0.2:  # asked for before, in vain
                again = self.add_request(key, kind, first, row["days"], "rejected")
                again["reason"] = "Stocktaking"

    def add_request(self, key: str, kind: str, first: str, days: int, status: str) -> Row:
        dates = {"first_day": first, "last_day": _later(first, days - 1), "days": days}
        return self.add("requests", employee_id=key, kind=kind, **dates, status=status)

    def _add_money(self, rng: random.Random, employee: Row) -> None:
        key = employee["employee_id"]
        for _ in range(rng.randint(0, 6)):
            status = rng.choice([*["approved"] * 5, "submitted", "rejected", "scheduled"])
            row = self.add("claims", employee_id=key, category=rng.choice(CATEGORIES))
            row |= {"amount": rng.randrange(420, 36000) / 100, "status": status}
            row |= {"spent_on": _later("2027-01-04", rng.randrange(0, 65))}
            row["receipt"] = status != "submitted" or rng.random() < 0.5
        for _ in range(rng.choice([0, 0, 1, 1, 2])):
            amount = rng.randrange(4, 40) * 50
            repaid = rng.randrange(0, amount, 25)
            status = rng.choice(["open", "open", "settled", "disputed"])
            if status == "settled":
                repaid = amount
            sums = {"amount": amount, "repaid": repaid}
            self.add("advances", employee_id=key, **sums, status=status)
        for name in rng.sample(THINGS, rng.choice([0, 1, 2, 2, 3])):
            status = rng.choice([*["returned"] * 6, "written_off", "issued"])
            self.add("equipment", employee_id=key, name=name, status=status)

    def _add_benefits(self, rng: random.Random, employee: Row) -> None:
        key, company = employee["employee_id"], employee["company_id"]
        for benefit in rng.sample(BENEFITS, rng.choice([0, 1, 1, 2])):
            plan = rng.choice(self.where("plans", company_id=company, benefit=benefit))
            state = {"start": employee["benefits_from"], "status": rng.choice(["active", "ended"])}
            state["plan_id"] = plan["plan_id"]
            self.add("enrolments", employee_id=key, benefit=benefit, **state)
        for at, name in enumerate(rng.sample(FIRST, rng.choice([0, 1, 2, 3, 4]))):
            relation = "partner" if at == 0 else "child"
            born = _later("1980-01-01" if at == 0 else "2009-06-01", rng.randrange(0, 5000))
            self.add("family", employee_id=key, name=name, relation=relation, born=born)

    @staticmethod
    def iban(rng: random.Random) -> str:
        """Return a new account number."""
        return f"GB{rng.randrange(10, 99)}NWBK{rng.randrange(10**13, 10**14)}"

    @staticmethod
    def month(value: object) -> str:
        """Return a month, or refuse the call."""
        if not isinstance(value, str) or not re.fullmatch(r"\d{4}-\d\d", value):
            raise ToolError(f"invalid month {value!r}: use YYYY-MM")
        return value

    # Read tools

    def find_companies(self, name: str) -> list[Row]:
        return self.search("companies", "name", name, "company_id", "name")

    def get_company(self, company_id: str) -> Row:
        return self.get("companies", company_id)

    def find_employees(self, company_id: str, name: str) -> list[Row]:
        self.get("companies", company_id)
        shown = ["company_id", "employee_id", "name", "department", "status"]
        rows = self.search("employees", "name", name, *shown)
        return [row for row in rows if row.pop("company_id") == company_id]

    def find_employee_by_email(self, email: str) -> Row:
        return self.pick("employees", email=email)

    def find_employee_by_number(self, company_id: str, staff_no: str) -> Row:
        return self.pick("employees", company_id=company_id, staff_no=staff_no)

    def get_employee(self, employee_id: str) -> Row:
        return self.get("employees", employee_id)

    def get_contract(self, employee_id: str) -> Row:
        return self.pick("contracts", employee_id=employee_id)

    def get_pay_run(self, company_id: str, month: str) -> Row:
        return self.pick("pay_runs", company_id=company_id, month=self.month(month))

    def list_pay_runs(self, company_id: str) -> list[Row]:
        return self.where("pay_runs", company_id=company_id)

    def list_leave_requests(self, employee_id: str) -> list[Row]:
        return self.where("requests", employee_id=employee_id)

    def list_leave_balances(self, employee_id: str) -> list[Row]:
        return self.where("balances", employee_id=employee_id)

    def list_claims(self, employee_id: str) -> list[Row]:
        rows = self.where("claims", employee_id=employee_id)
        return [optional(row, "claim_id", "category", "status") for row in rows]

    def get_claim(self, claim_id: str) -> Row:
        return self.get("claims", claim_id)

    def list_pay_codes(self, company_id: str) -> list[Row]:
        return self.where("pay_codes", company_id=company_id)

    def list_plans(self, company_id: str, benefit: str) -> list[Row]:
        if benefit not in BENEFITS:
            raise ToolError(f"unknown benefit {benefit!r}: use one of {', '.join(BENEFITS)}")
        return self.where("plans", company_id=company_id, benefit=benefit)

    def list_enrolments(self, employee_id: str) -> list[Row]:
        return self.where("enrolments", employee_id=employee_id)

    def list_family(self, employee_id: str) -> list[Row]:
        return self.where("family", employee_id=employee_id)

    def list_advances(self, employee_id: str) -> list[Row]:
        return self.where("advances", employee_id=employee_id)

    def list_equipment(self, employee_id: str) -> list[Row]:
        return self.where("equipment", employee_id=employee_id)

    # Write tools

    def set_bank_account(
        self, employee_id: str, iban: str, from_month: str, holder: str = ""
    ) -> Row:
        row = self.get("employees", employee_id)
        if not re.fullmatch(r"[A-Z]{2}\d\d[A-Z0-9]{10,30}", str(iban)):
            raise ToolError(f"invalid iban {iban!r}")
        row["bank"] = {"iban": iban, "since": self.month(from_month), "holder": holder}
        return {"employee_id": employee_id, "bank": row["bank"]}

    def approve_leave(self, request_id: str, approved_by: str, comment: str = "") -> Row:
        row = self.get("requests", request_id)
        row.update(status="approved", approved_by=approved_by, comment=comment)
        return {"request_id": request_id, "status": "approved"}

    def reimburse_claim(
        self, claim_id: str, run_id: str, pay_code: str, amount: float, note: str = ""
    ) -> Row:
        claim, run = self.get("claims", claim_id), self.get("pay_runs", run_id)
        code = self.get("pay_codes", pay_code)["code"]
        claim["status"] = "scheduled"
        posted = {"run_id": run["run_id"], "code": code, "amount": amount, "note": note}
        return self.add("postings", claim_id=claim_id, **posted)

    def enrol(self, employee_id: str, plan_id: str, start: str) -> Row:
        plan, key = self.get("plans", plan_id), self.get("employees", employee_id)["employee_id"]
        values = {"benefit": plan["benefit"], "plan_id": plan_id, "start": self.iso(start)}
        return self.add("enrolments", employee_id=key, **values, status="active")

    def cover_dependant(self, enrolment_id: str, member_id: str) -> Row:
        row, member = self.get("enrolments", enrolment_id), self.get("family", member_id)
        row.setdefault("covered", []).append(member["member_id"])
        return {"enrolment_id": enrolment_id, "covered": row["covered"]}

    def end_employment(self, employee_id: str, last_day: str, reason: str = "") -> Row:
        row = self.get("employees", employee_id)
        row.update(status="left", last_day=self.iso(last_day), reason=reason)
        return {"employee_id": employee_id, "status": "left", "last_day": last_day}

    def pay_out_leave(self, employee_id: str, run_id: str, days: float, amount: float) -> Row:
        key, run = self.get("employees", employee_id)["employee_id"], self.get("pay_runs", run_id)
        posted = {"run_id": run["run_id"], "days": days, "amount": amount}
        return self.add("postings", employee_id=key, code="LEAVE", **posted)

    def deduct_advance(self, advance_id: str, run_id: str, amount: float) -> Row:
        advance, run = self.get("advances", advance_id), self.get("pay_runs", run_id)
        posted = {"run_id": run["run_id"], "amount": amount}
        return self.add("postings", advance_id=advance["advance_id"], code="ADVANCE", **posted)


BASE = PayrollBureau()
CLIENTS = [row["company_id"] for row in BASE.where("companies", status="active")]
STAFF = [
    row
    for row in BASE.db["employees"].values()
    if row["company_id"] in CLIENTS and row["status"] in CURRENT
]


def _turn(kind: str, rows: Sequence[Any], number: int) -> Any:
    """Return the record of this number, so that no two of sixty tasks share one."""
    assert len(rows) >= 60, f"{kind}: only {len(rows)} records"
    return random.Random(kind).sample(rows, len(rows))[number % len(rows)]


def _named(rng: random.Random, employee: Row) -> Facts:
    """Return the inputs that name an employee; the department if the name is not enough."""
    same = {"company_id": employee["company_id"], "name": employee["name"]}
    alike = [row for row in BASE.where("employees", **same) if row["status"] in CURRENT]
    facts = {"company": BASE.get("companies", employee["company_id"])["name"]}
    facts["employee"] = employee["name"]
    if len(alike) > 1 or rng.random() < 0.15:
        facts["department"] = employee["department"]
    return facts


def _read_company(world: PayrollBureau, name: str, variant: int) -> Row:
    """Find a client by its exact name and read its record."""
    if variant % 11 == 8:
        world.stumble("get_company", company_id=name)
    searched = name.split(maxsplit=1)[0] if variant % 4 == 1 else name
    found = only(world.call("find_companies", name=searched), name=name)
    company: Row = world.call("get_company", company_id=found["company_id"])
    need(company["status"] == "active", "not a client any more")
    return company


def _read_employee(world: PayrollBureau, company_id: str, facts: Facts, variant: int) -> Row:
    """Find a present employee by name, and department if given, and read the record."""
    name = facts["employee"]
    searched = name.split()[-1] if variant % 5 == 3 else name
    rows = world.call("find_employees", company_id=company_id, name=searched)
    present = [row for row in rows if row["status"] in CURRENT]
    found = only(present, name=name, **optional(facts, "department"))
    record: Row = world.call("get_employee", employee_id=found["employee_id"])
    return record


def _who(facts: Facts) -> str:
    place = f" ({facts['department']})" if "department" in facts else ""
    return f"{facts['employee']}{place}"


def _person(world: PayrollBureau, facts: Facts) -> Row:
    """Return the employee that the facts mean by name."""
    company = world.pick("companies", name=facts["company"])["company_id"]
    wanted = {"name": facts["employee"], **optional(facts, "department")}
    rows = world.where("employees", company_id=company, **wanted)
    return next(row for row in rows if row["status"] in CURRENT)


def _lock_run(world: PayrollBureau, facts: Facts) -> None:
    """Lock the pay run of the month that the facts name."""
    company = world.pick("companies", name=facts["company"])["company_id"]
    world.get_pay_run(company, facts["month"])["status"] = "locked"


# Pay the salary of an employee to another bank account from a month on.
def _bank_facts(number: int) -> Facts:
    rng = random.Random(f"change_bank/{number}")
    rows = [row for row in STAFF if not row["bank_hold"]]
    employee = _turn("change_bank", rows, number)
    runs = BASE.where("pay_runs", company_id=employee["company_id"], status="open")
    facts = _named(rng, employee)
    facts |= {"iban": BASE.iban(rng), "month": rng.choice(runs)["month"]}
    if rng.random() < 0.25:
        facts["holder"] = f"{rng.choice(FIRST)} {employee['name'].split()[-1]}"
    return facts


def _solve_bank(world: PayrollBureau, facts: Facts, variant: int) -> None:
    company = _read_company(world, facts["company"], variant)
    key = company["company_id"]
    if variant % 3 == 2:
        run = world.call("get_pay_run", company_id=key, month=facts["month"])
    employee = _read_employee(world, key, facts, variant)
    if variant % 6 == 4:
        world.call("get_contract", employee_id=employee["employee_id"])
    if variant % 3 != 2:
        run = world.call("get_pay_run", company_id=key, month=facts["month"])
    need(employee["status"] in CURRENT, "not employed any more")
    need(employee["bank_hold"] is False, "a court holds the account")
    need(run["status"] == "open", "the pay run is not open")
    args = {"employee_id": employee["employee_id"], "from_month": facts["month"]}
    args |= optional(facts, "holder")
    if variant % 10 == 7:
        spaced = " ".join(re.findall(".{1,4}", facts["iban"]))
        world.stumble("set_bank_account", **args, iban=spaced)
    world.call("set_bank_account", **args, iban=facts["iban"])


BANK_WORDS = (
    "{company}: please pay {who} to {iban} from {month} on.{held}",
    "New bank account for {who} at {company}, from {month}: {iban}.{held}",
    "{who} of {company} has a new account, {iban}. Use it from the {month} run.{held}",
    "Change the account of {who} ({company}) to {iban}, starting {month}.{held}",
)
BANK = Kind(
    "change_bank",
    PayrollBureau,
    _bank_facts,
    _solve_bank,
    BANK_WORDS,
    lambda f: {
        "who": _who(f),
        "held": f" The account holder is {f['holder']}." if "holder" in f else "",
    },
)


def _add_namesake(world: PayrollBureau, facts: Facts) -> None:
    row = _person(world, facts)
    other = next(part for part in DEPARTMENTS if part != row["department"])
    values = {key: value for key, value in row.items() if key != "employee_id"}
    values |= {"department": other, "staff_no": "991", "email": f"x.{row['email']}"}
    world.add("employees", **values)


BANK.trap("two employees of this name", _add_namesake, None, lambda f: "department" not in f)
BANK.trap("pay run locked", _lock_run)
BANK.trap("employee has left", lambda w, f: _person(w, f).update(status="left"))
BANK.trap("account held by a court", lambda w, f: _person(w, f).update(bank_hold=True))


# Approve a pending request for leave, as the employee's manager decided.
def _enough(world: PayrollBureau, request: Row) -> bool:
    rows = world.where("balances", employee_id=request["employee_id"], kind=request["kind"])
    return bool(rows[0]["days_left"] >= request["days"])


def _pending(request: Row) -> list[Row]:
    """Return the pending requests of the same person for the same days."""
    same = optional(request, "employee_id", "first_day", "last_day")
    return BASE.where("requests", **same, status="pending")


def _leave_facts(number: int) -> Facts:
    rng = random.Random(f"approve_leave/{number}")
    present = [row["employee_id"] for row in STAFF]
    rows = [row for row in BASE.where("requests", status="pending") if _enough(BASE, row)]
    rows = [row for row in rows if row["employee_id"] in present and len(_pending(row)) == 1]
    request = _turn("approve_leave", rows, number)
    employee = BASE.get("employees", request["employee_id"])
    facts = {"employee_email": employee["email"], "manager": employee["manager"]}
    facts |= optional(request, "first_day", "last_day")
    if rng.random() < 0.3:
        facts["comment"] = rng.choice(["Enjoy", "Hand over the keys first", "Cover arranged"])
    return facts


def _solve_leave(world: PayrollBureau, facts: Facts, variant: int) -> None:
    if variant % 9 == 5:
        name = facts["employee_email"].split("@")[0]
        world.stumble("find_employee_by_email", email=name)
    employee = world.call("find_employee_by_email", email=facts["employee_email"])
    key = employee["employee_id"]
    need(employee["status"] in CURRENT, "not employed any more")
    need(employee["manager"] == facts["manager"], "not the manager of this employee")
    if variant % 5 == 2:
        world.call("get_company", company_id=employee["company_id"])
    if variant % 2:
        balances = world.call("list_leave_balances", employee_id=key)
    requests = world.call("list_leave_requests", employee_id=key)
    if not variant % 2:
        balances = world.call("list_leave_balances", employee_id=key)
    request = only(requests, **optional(facts, "first_day", "last_day"), status="pending")
    left = amount_of(only(balances, kind=request["kind"]), "days_left")
    need(amount_of(request, "days") <= left, "not enough days left")
    args = {"approved_by": facts["manager"], **optional(facts, "comment")}
    if variant % 10 == 6:
        world.stumble("approve_leave", request_id=key, **args)
    world.call("approve_leave", request_id=request["request_id"], **args)


LEAVE_WORDS = (
    "{manager} approves the leave of {employee_email} from {first_day} to {last_day}.{commented}",
    "Approve {employee_email}'s leave, {first_day} until {last_day}; {manager} agreed.{commented}",
    "Leave approval: {employee_email}, {first_day} to {last_day}, by {manager}.{commented}",
    "{employee_email} may be off {first_day} to {last_day}, says {manager}. Approve it.{commented}",
)
LEAVE = Kind(
    "approve_leave",
    PayrollBureau,
    _leave_facts,
    _solve_leave,
    LEAVE_WORDS,
    lambda f: {"commented": f" Comment: {f['comment']}." if "comment" in f else ""},
)


def _request(world: PayrollBureau, facts: Facts) -> Row:
    key = world.pick("employees", email=facts["employee_email"])["employee_id"]
    dates = optional(facts, "first_day", "last_day")
    return world.pick("requests", employee_id=key, status="pending", **dates)


def _use_up(world: PayrollBureau, facts: Facts) -> None:
    request = _request(world, facts)
    same = optional(request, "employee_id", "kind")
    world.pick("balances", **same)["days_left"] = request["days"] - 0.5


def _ask_twice(world: PayrollBureau, facts: Facts) -> None:
    row = _request(world, facts)
    other = "study" if row["kind"] == "annual" else "annual"
    same = optional(row, "employee_id")
    world.pick("balances", **same, kind=other)["days_left"] = row["days"] + 2
    world.add_request(row["employee_id"], other, row["first_day"], row["days"], "pending")


def _other_manager(facts: Facts) -> Facts:
    employee = BASE.pick("employees", email=facts["employee_email"])
    rows = BASE.where("employees", company_id=employee["company_id"])
    names = [row["name"] for row in rows if row["name"] != employee["name"]]
    return {"manager": next(name for name in names if name != facts["manager"])}


LEAVE.trap("manager of other people", differ=_other_manager)
LEAVE.trap("not enough days left", _use_up)
LEAVE.trap("request withdrawn", lambda w, f: _request(w, f).update(status="withdrawn"))
LEAVE.trap("two requests for these days", _ask_twice)


# Reimburse a list of expense claims with the pay run of a month.
def _claims_facts(number: int) -> Facts:
    rng = random.Random(f"pay_expenses/{number}")
    ready = [
        (row, BASE.where("claims", employee_id=row["employee_id"], status="approved"))
        for row in STAFF
    ]
    employee, claims = _turn("pay_expenses", [pair for pair in ready if pair[1]], number)
    chosen = rng.sample(claims, min(rng.choice([1, 2, 2, 3, 4]), len(claims)))
    runs = BASE.where("pay_runs", company_id=employee["company_id"], status="open")
    facts = {"company": BASE.get("companies", employee["company_id"])["name"]}
    facts |= {"staff_no": employee["staff_no"], "claims": [row["claim_id"] for row in chosen]}
    facts["month"] = rng.choice(runs)["month"]
    if rng.random() < 0.3:
        facts["note"] = rng.choice(["Trade fair", "Site visit", "Agreed by phone"])
    return facts


def _solve_claims(world: PayrollBureau, facts: Facts, variant: int) -> None:
    refs = facts["claims"]
    need(refs and len(set(refs)) == len(refs), "a claim listed twice, or none")
    key = _read_company(world, facts["company"], variant)["company_id"]
    if variant % 8 == 6:
        world.stumble("find_employee_by_number", company_id=key, staff_no=f"#{facts['staff_no']}")
    number = {"company_id": key, "staff_no": facts["staff_no"]}
    if variant % 3 == 0:
        run = world.call("get_pay_run", company_id=key, month=facts["month"])
    employee = world.call("find_employee_by_number", **number)
    need(employee["status"] in CURRENT, "not employed any more")
    if variant % 7 == 4:
        world.call("list_claims", employee_id=employee["employee_id"])
    if variant % 4 == 2:
        codes = world.call("list_pay_codes", company_id=key)
    claims = [world.call("get_claim", claim_id=ref) for ref in refs]
    if variant % 4 != 2:
        codes = world.call("list_pay_codes", company_id=key)
    if variant % 3 != 0:
        run = world.call("get_pay_run", company_id=key, month=facts["month"])
    need(run["status"] == "open", "the pay run is not open")
    chosen = []
    for claim in claims:
        need(claim["employee_id"] == employee["employee_id"], "a claim of another person")
        need(claim["status"] == "approved", "claim not approved")
        need(claim["receipt"] is True, "no receipt")
        chosen.append(only(codes, category=claim["category"])["code"])
    for at, (claim, code) in enumerate(zip(claims, chosen, strict=True)):
        args = {"claim_id": claim["claim_id"], "run_id": run["run_id"]}
        args |= {"amount": amount_of(claim, "amount"), **optional(facts, "note")}
        if variant % 10 == 8 and at == 0:
            world.stumble("reimburse_claim", **args, pay_code=claim["category"])
        world.call("reimburse_claim", **args, pay_code=code)


CLAIMS_WORDS = (
    "{company}: reimburse the claims {listed} of staff number {staff_no} in {month}.{noted}",
    "Please pay {listed} with the {month} run, staff no. {staff_no} at {company}.{noted}",
    "Expenses of {company}, employee {staff_no}: {listed}; pay run {month}.{noted}",
    "Add the expenses {listed} to the {month} pay of {staff_no}, {company}.{noted}",
)
CLAIMS = Kind(
    "pay_expenses",
    PayrollBureau,
    _claims_facts,
    _solve_claims,
    CLAIMS_WORDS,
    lambda f: {
        "listed": ", ".join(f["claims"]),
        "noted": f" Note: {f['note']}." if "note" in f else "",
    },
)


def _last_claim(world: PayrollBureau, facts: Facts) -> Row:
    return world.get("claims", facts["claims"][-1])


def _claim_of_colleague(facts: Facts) -> Facts:
    """Return the claims with an approved one of a colleague at the end."""
    own = _last_claim(BASE, facts)["employee_id"]
    company = BASE.get("employees", own)["company_id"]
    colleagues = [row["employee_id"] for row in BASE.where("employees", company_id=company)]
    rows = BASE.where("claims", status="approved")
    rows = [row for row in rows if row["employee_id"] in colleagues and row["employee_id"] != own]
    return {"claims": [*facts["claims"][:-1], rows[0]["claim_id"]]}


CLAIMS.trap("one claim of a colleague", None, _claim_of_colleague, lambda f: len(f["claims"]) > 1)
CLAIMS.trap("claim not approved yet", lambda w, f: _last_claim(w, f).update(status="submitted"))
CLAIMS.trap("pay run locked", _lock_run)
CLAIMS.trap(
    "one claim twice",
    None,
    lambda f: {"claims": [*f["claims"], f["claims"][0]]},
    lambda f: 1 < len(f["claims"]) < 4,
)


# Enrol an employee in the plan for the grade, and cover the dependants if there are any.
def _fitting(plans: list[Row], grade: float) -> list[Row]:
    """Return the plans that take new members of this grade."""
    rows = [row for row in plans if row["status"] == "open"]
    return [row for row in rows if row["from_grade"] <= grade <= row["to_grade"]]


def _free_benefits(employee: Row) -> list[str]:
    """Return the benefits in which the employee could be enrolled."""
    key, grade = employee["employee_id"], employee["grade"]
    active = [row["benefit"] for row in BASE.where("enrolments", employee_id=key, status="active")]
    plans = BASE.where("plans", company_id=employee["company_id"])
    open_to = [row["benefit"] for row in _fitting(plans, grade)]
    return [name for name in BENEFITS if name in open_to and name not in active]


def _enrol_facts(number: int) -> Facts:
    rng = random.Random(f"enrol_benefit/{number}")
    starts = [f"2027-{month:02}-01" for month in range(4, 10)]
    rows = [row for row in STAFF if row["benefits_from"] <= starts[-1] and _free_benefits(row)]
    employee = _turn("enrol_benefit", rows, number)
    facts = _named(rng, employee)
    facts["benefit"] = rng.choice(_free_benefits(employee))
    facts["start"] = rng.choice([day for day in starts if day >= employee["benefits_from"]])
    family = [row["name"] for row in BASE.where("family", employee_id=employee["employee_id"])]
    if family and rng.random() < 0.55:
        facts["dependants"] = rng.sample(family, rng.randint(1, min(2, len(family))))
    return facts


def _dependants(facts: Facts) -> list[str]:
    names: list[str] = facts.get("dependants", [])
    need(len(set(names)) == len(names), "a dependant listed twice")
    return names


def _solve_enrol(world: PayrollBureau, facts: Facts, variant: int) -> None:
    names = _dependants(facts)
    company = _read_company(world, facts["company"], variant)["company_id"]
    if variant % 9 == 4:
        wrong = f"{facts['benefit']} plan"
        world.stumble("list_plans", company_id=company, benefit=wrong)
    if variant % 3 == 1:
        plans = world.call("list_plans", company_id=company, benefit=facts["benefit"])
    employee = _read_employee(world, company, facts, variant)
    key = employee["employee_id"]
    need(employee["benefits_from"] <= facts["start"], "no benefits before that day")
    if variant % 4 == 2:
        family = world.call("list_family", employee_id=key)
    enrolments = world.call("list_enrolments", employee_id=key)
    if variant % 3 != 1:
        plans = world.call("list_plans", company_id=company, benefit=facts["benefit"])
    if variant % 4 != 2 and names:
        family = world.call("list_family", employee_id=key)
    active = [row for row in enrolments if row["status"] == "active"]
    need(facts["benefit"] not in [row["benefit"] for row in active], "enrolled already")
    plan = only(_fitting(plans, amount_of(employee, "grade")))
    members = [only(family, name=name)["member_id"] for name in names]
    args = {"employee_id": key, "plan_id": plan["plan_id"]}
    if variant % 10 == 5:
        world.stumble("enrol", **args, start=facts["start"].replace("-", "."))
    enrolment = world.call("enrol", **args, start=facts["start"])
    for member in members:
        covered = {"enrolment_id": enrolment["enrolment_id"], "member_id": member}
        world.call("cover_dependant", **covered)


ENROL_WORDS = (
    "Enrol {who} of {company} in the {benefit} plan from {start}.{family}",
    "{company} would like {who} to have the {benefit} benefit as of {start}.{family}",
    "Benefits, {company}: {who}, {benefit}, start {start}.{family}",
    "Please set up {benefit} for {who} at {company}, starting on {start}.{family}",
)
ENROL = Kind(
    "enrol_benefit",
    PayrollBureau,
    _enrol_facts,
    _solve_enrol,
    ENROL_WORDS,
    lambda f: {
        "who": _who(f),
        "family": f" Also cover {' and '.join(f['dependants'])}." if "dependants" in f else "",
    },
)


def _enrol_before(world: PayrollBureau, facts: Facts) -> None:
    employee = _person(world, facts)
    plans = world.where("plans", company_id=employee["company_id"], benefit=facts["benefit"])
    values = {"benefit": facts["benefit"], "plan_id": plans[0]["plan_id"]}
    values |= {"start": "2026-11-01", "status": "active"}
    world.add("enrolments", employee_id=employee["employee_id"], **values)


def _unknown_dependant(facts: Facts) -> Facts:
    key = _person(BASE, facts)["employee_id"]
    known = [row["name"] for row in BASE.where("family", employee_id=key)]
    return {"dependants": [next(name for name in FIRST if name not in known)]}


def _close_plan(world: PayrollBureau, facts: Facts) -> None:
    employee = _person(world, facts)
    plans = world.where("plans", company_id=employee["company_id"], benefit=facts["benefit"])
    for row in _fitting(plans, employee["grade"]):
        row["status"] = "closed"


ENROL.trap("enrolled already", _enrol_before)
ENROL.trap("dependant unknown", None, _unknown_dependant, lambda f: "dependants" in f)
ENROL.trap(
    "start in the waiting time",
    lambda w, f: _person(w, f).update(benefits_from=_later(f["start"], 20)),
)
ENROL.trap("plan closed to new members", _close_plan)


# End an employment: pay out unused leave if the contract says so, deduct open advances.
def _settle_facts(number: int) -> Facts:
    rng = random.Random(f"settle_leaver/{number}")
    rows = []
    for row in STAFF:
        wanted = {"employee_id": row["employee_id"]}
        out = BASE.where("equipment", **wanted, status="issued")
        disputed = BASE.where("advances", **wanted, status="disputed")
        if not out and not disputed and BASE.pick("balances", **wanted)["days_left"] >= 0:
            rows.append(row)
    employee = _turn("settle_leaver", rows, number)
    first = BASE.get_contract(employee["employee_id"])["earliest_end"]
    runs = BASE.where("pay_runs", company_id=employee["company_id"], status="open")
    first = max(first, min(run["first_day"] for run in runs))
    last = _later(first, 0 if rng.random() < 0.15 else rng.randrange(1, 45))
    facts = {"employee_email": employee["email"], "last_day": last}
    if rng.random() < 0.4:
        facts["reason"] = rng.choice(["Resigned", "Retires", "End of the project", "Moves away"])
    return facts


def _need_clear(equipment: list[Row], advances: list[Row]) -> None:
    """Hand over if something is still out or an advance is in dispute."""
    need(all(row["status"] in ("returned", "written_off") for row in equipment), "not returned")
    need(all(row["status"] in ("open", "settled") for row in advances), "an advance in dispute")


def _last_run(runs: list[Row], last: str) -> Row:
    """Return the open pay run in which the last day falls."""
    run = only([row for row in runs if row["first_day"] <= last <= row["last_day"]])
    need(run["status"] == "open", "the pay run is not open")
    return run


def _owed(advances: list[Row]) -> list[tuple[str, float]]:
    """Return the open advances with what is left to repay."""
    due = [row for row in advances if row["status"] == "open"]
    rest = [round(amount_of(row, "amount") - amount_of(row, "repaid"), 2) for row in due]
    return [(row["advance_id"], left) for row, left in zip(due, rest, strict=True)]


def _solve_settle(world: PayrollBureau, facts: Facts, variant: int) -> None:
    last = facts["last_day"]
    if variant % 9 == 3:
        world.stumble("find_employee_by_email", email=facts["employee_email"].upper())
    employee = world.call("find_employee_by_email", email=facts["employee_email"])
    key = employee["employee_id"]
    need(employee["status"] in CURRENT, "not employed any more")
    if variant % 3 == 2:
        runs = world.call("list_pay_runs", company_id=employee["company_id"])
    contract = world.call("get_contract", employee_id=key)
    need(contract["earliest_end"] <= last, "before the end of the notice")
    if variant % 2:
        equipment = world.call("list_equipment", employee_id=key)
    balances = world.call("list_leave_balances", employee_id=key)
    advances = world.call("list_advances", employee_id=key)
    if not variant % 2:
        equipment = world.call("list_equipment", employee_id=key)
    if variant % 7 == 5:
        world.call("list_enrolments", employee_id=key)
    if variant % 3 != 2:
        runs = world.call("list_pay_runs", company_id=employee["company_id"])
    _need_clear(equipment, advances)
    run = _last_run(runs, last)
    days = amount_of(only(balances, kind="annual"), "days_left")
    need(days >= 0, "took more leave than earned")
    pay = round(days * amount_of(contract, "day_rate"), 2)
    owed = _owed(advances)
    if variant % 10 == 4:
        wrong = last.replace("-", "/")
        world.stumble("end_employment", employee_id=key, last_day=wrong)
    world.call("end_employment", employee_id=key, last_day=last, **optional(facts, "reason"))
    if contract["leave_pay"] == "at_end" and days > 0:
        args = {"employee_id": key, "run_id": run["run_id"]}
        world.call("pay_out_leave", **args, days=days, amount=pay)
    for advance_id, rest in owed:
        args = {"advance_id": advance_id, "run_id": run["run_id"]}
        world.call("deduct_advance", **args, amount=rest)


SETTLE_WORDS = (
    "{employee_email} leaves on {last_day}; please do the final settlement.{why}",
    "Final pay for {employee_email}, last day {last_day}: leave and advances as usual.{why}",
    "Leaver: {employee_email}, last working day {last_day}. Close and settle.{why}",
    "Please end the employment of {employee_email} on {last_day} and settle what is open.{why}",
)
SETTLE = Kind(
    "settle_leaver",
    PayrollBureau,
    _settle_facts,
    _solve_settle,
    SETTLE_WORDS,
    lambda f: {"why": f" Reason: {f['reason']}." if "reason" in f else ""},
)


def _leaver(world: PayrollBureau, facts: Facts) -> Row:
    return world.pick("employees", email=facts["employee_email"])


def _lock_last_run(world: PayrollBureau, facts: Facts) -> None:
    company = _leaver(world, facts)["company_id"]
    world.get_pay_run(company, facts["last_day"][:7])["status"] = "locked"


def _keep_laptop(world: PayrollBureau, facts: Facts) -> None:
    key = _leaver(world, facts)["employee_id"]
    world.add("equipment", employee_id=key, name="laptop", status="issued")


def _too_early(facts: Facts) -> Facts:
    contract = BASE.get_contract(_leaver(BASE, facts)["employee_id"])
    return {"last_day": _later(contract["earliest_end"], -1)}


def _run_open_before(facts: Facts) -> bool:
    """Tell whether the pay run would be open the day before the notice ends."""
    run = BASE.get_pay_run(_leaver(BASE, facts)["company_id"], _too_early(facts)["last_day"][:7])
    return bool(run["status"] == "open")


def _dispute(world: PayrollBureau, facts: Facts) -> None:
    key = _leaver(world, facts)["employee_id"]
    world.pick("advances", employee_id=key, status="open")["status"] = "disputed"


def _has_advance(facts: Facts) -> bool:
    key = _leaver(BASE, facts)["employee_id"]
    return bool(BASE.where("advances", employee_id=key, status="open"))


SETTLE.trap("pay run locked", _lock_last_run)
SETTLE.trap("laptop not returned", _keep_laptop)
SETTLE.trap("before the end of the notice", None, _too_early, _run_open_before)
SETTLE.trap("advance in dispute", _dispute, None, _has_advance)

KINDS = [BANK, LEAVE, CLAIMS, ENROL, SETTLE]
