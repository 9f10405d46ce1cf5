"""tau2-bench telecom: a phone with several faults is put right, in a loop of checks and fixes.

Tasks are made by tau2-bench's own code and scored by its assertions. A trace is what a scripted
solver does. It makes the checks of the support manual in their order, after each check the gold
actions that belong to it, and then the check again; last, the check that the customer cares about.
Where a check shows a fault that nobody can put right, it transfers the customer to a person and
stops. The fields of the ticket are the inputs: name, phone number and location of the customer.
There is one routine for each kind of complaint.
"""

import importlib
import json
import os
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.figure import Figure
from bench.learn.learner import Plain, Runnable, Tools
from bench.learn.report import Report
from bench.right.verdict import Ended, Verdict, zero
from bench.right.world import ToolError, hollow

if TYPE_CHECKING:
    from em.traces.trace import Trace

CHECKOUT = "EM_TAU2_BENCH"
HOW_TO_GET_IT = (
    f"{CHECKOUT} names no checkout of tau2-bench; this part is passed over. Get one with\n"
    "    git clone https://github.com/sierra-research/tau2-bench && cd tau2-bench\n"
    "    python -m pip install --target .deps loguru deepdiff addict python-dotenv toml\n"
    f"    export {CHECKOUT}=$PWD"
)
FOLDS = 5
COLUMNS = ("right", "handed over", "after fixes", "wrong", "not learnt")
"""Right; handed over before any write, or after writes that are right; wrong."""
TRANSFER = "transfer_to_human_agents"
COMPLAINTS = {
    "service_issue": "service_issues.service_issues_task_manager",
    "mobile_data_issue": "mobile_data_issues.mobile_data_task_manager",
    "mms_issue": "mms_issues.mms_issue_task_manager",
}
LINE = "the customer's line"
CHECKS: dict[str, list[tuple[str, str]]] = {
    "service_issue": [
        ("check_network_status", "toggle_airplane_mode"),
        ("check_sim_status", "reseat_sim_card"),
        ("check_apn_settings", "reset_apn_settings"),
        ("get_bills_for_customer", "send_payment_request"),
        ("check_status_bar", ""),
    ],
    "mobile_data_issue": [
        ("check_network_status", "toggle_airplane_mode toggle_data"),
        (LINE, "enable_roaming toggle_roaming"),
        ("get_data_usage", "refuel_data"),
        ("check_data_restriction_status", "toggle_data_saver_mode"),
        ("check_network_mode_preference", "set_network_mode_preference"),
        ("check_vpn_status", "disconnect_vpn"),
        ("run_speed_test", ""),
    ],
    "mms_issue": [
        ("check_network_status", "toggle_airplane_mode toggle_data"),
        ("check_sim_status", "reseat_sim_card"),
        (LINE, "enable_roaming toggle_roaming"),
        ("get_data_usage", "refuel_data"),
        ("check_network_mode_preference", "set_network_mode_preference"),
        ("check_wifi_calling_status", "toggle_wifi_calling"),
        ("check_app_permissions", "grant_app_permission"),
        ("check_apn_settings", "reset_apn_settings"),
        ("can_send_mms", ""),
    ],
}
"""What the solver reads, in this order, and the first tool of the fixes that belong to it."""
LATER = frozenset({"make_payment", "resume_line", "reboot_device"})
"""Actions that belong to the fix before them."""


class Task(NamedTuple):
    """A task: its id, complaint and faults, its ticket, and what tau2-bench knows about it.

    fixes: the writes that put its faults right, in their order. gold: as tau2-bench lists it; if a
    fault can't be put right, that is only a transfer to a person.
    """

    name: str
    complaint: str
    faults: tuple[str, ...]
    ticket: str
    spec: Any
    fixes: list[tuple[str, dict[str, Any]]]

    @property
    def inputs(self) -> dict[str, str]:
        """The fields of its ticket: `Customer name: …, phone number: …, current location: ….`."""
        _, name, rest = self.ticket.partition("Customer name: ")
        fields = re.findall(r"([a-zA-Z ]+): ([^,.]+)", name + rest.partition(".")[0])
        return {field.strip().lower().replace(" ", "_"): value for field, value in fields}

    @property
    def is_fixable(self) -> bool:
        return all(action.name != TRANSFER for action in self.spec.evaluation_criteria.actions)

    @property
    def classes(self) -> frozenset[str]:
        """The tools that its faults need; a fault that nobody can put right has its own name."""
        tools = {tool for tool, _ in self.fixes if tool not in LATER}
        return frozenset(tools | {fault for fault in self.faults if fault in UNFIXABLE})

    @property
    def ends_at(self) -> frozenset[str]:
        """The checks that show a fault that nobody can put right."""
        return frozenset(UNFIXABLE[fault] for fault in self.faults if fault in UNFIXABLE)


UNFIXABLE = {
    "lock_sim_card_pin": "check_sim_status",
    "contract_end_suspension": "get_bills_for_customer",
    "data_usage_exceeded_no_refuel": "get_data_usage",
}
"""Faults that nobody can put right, and the check that shows them."""


def checkout() -> Path | None:
    path = Path(os.environ.get(CHECKOUT, ""))
    return path if (path / "src" / "tau2" / "domains" / "telecom").is_dir() else None


class Phones:
    """tau2-bench's telecom domain: its tasks by split, and a fresh environment for each run."""

    def __init__(self, root: Path) -> None:
        os.environ["TAU2_DATA_DIR"] = str(root / "data")
        sys.path += [str(root / ".deps")]
        hollow("tau2", root / "src" / "tau2")
        with suppress(ImportError):
            importlib.import_module("loguru").logger.remove()
        self._module = importlib.import_module("tau2.domains.telecom.environment")
        self._splits = json.loads(
            (root / "data" / "tau2" / "domains" / "telecom" / "split_tasks.json").read_bytes()
        )

    @cached_property
    def _databases(self) -> tuple[Any, Any]:
        env = self._module.get_environment()
        return env.tools.db, env.user_tools.db

    def environment(self) -> Any:
        ours, theirs = self._databases
        return self._module.get_environment(db=deepcopy(ours), user_db=deepcopy(theirs))

    @cached_property
    def _composed(self) -> dict[tuple[str, str], tuple[Any, Any]]:
        utils = importlib.import_module("tau2.domains.telecom.tasks.utils")
        found = {}
        for complaint, where in COMPLAINTS.items():
            module, _, name = where.partition(".")
            module = f"tau2.domains.telecom.tasks.{module}"
            manager = getattr(importlib.import_module(module), name)
            for composed in utils.compose_tasks(manager.selection_sets, manager.task_validator):
                found[complaint, composed.name] = manager, composed
        return found

    def tasks(self, split: str) -> list[Task]:
        return [self._task(name) for name in self._splits[split]]

    @cache  # noqa: B019 - there is one of these
    def _task(self, name: str) -> Task:
        complaint, _, rest = name.removeprefix("[").partition("]")
        faults, _, persona = rest.removesuffix("]").partition("[PERSONA:")
        manager, composed = self._composed[complaint, faults]
        spec = manager.create_task(composed, persona)
        assert spec.id == name
        world = Phone(self, spec)
        fixes = [
            (call.name, dict(call.arguments))
            for func in composed.fix_funcs
            if func is not None
            for call in func(world.env)
        ]
        names = tuple(faults.split("|"))
        return Task(name, complaint, names, spec.ticket, spec, fixes)


class Phone:
    """The environment of one task, the tools of both sides on it, and the writes they made."""

    def __init__(self, of: Phones, spec: Any) -> None:
        self.env = of.environment()
        state = spec.initial_state
        self.env.set_state(state.initialization_data, state.initialization_actions, [])
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self._spec = spec

    def tools(self) -> Tools:
        import inspect

        found = {}
        for side, kit in (("assistant", self.env.tools), ("user", self.env.user_tools)):
            for name in kit.get_tools():
                found[name] = self._tool(name, side)
                signature = inspect.signature(getattr(kit, name))
                found[name].__dict__["__signature__"] = signature
        return found

    def _tool(self, name: str, side: str) -> Any:
        def call(**args: Any) -> Any:
            return self.call(name, args, side)

        call.__name__ = name
        return call

    def call(self, name: str, args: Mapping[str, Any], side: str = "") -> Any:
        """What a tool gives back, as a value. Errors are raised."""
        env = self.env
        side = side or ("user" if env.user_tools.has_tool(name) else "assistant")
        if self.effect(name) == "write":
            self.asked.append((name, deepcopy(dict(args))))
        try:
            said = env.make_tool_call(name, side, **deepcopy(dict(args)))
        except Exception as error:
            raise ToolError(f"Error: {error}") from error
        env.sync_tools()
        text = env.to_json_str(said)
        with suppress(ValueError):
            return json.loads(text)
        return text

    def effect(self, name: str) -> str:
        """Read or write, as tau2-bench declares it; a transfer to a person is a write."""
        kit = self.env.user_tools if self.env.user_tools.has_tool(name) else self.env.tools
        return "read" if kit.tool_type(name).value == "read" else "write"

    def is_as_asserted(self) -> bool:
        """Whether tau2-bench's assertions about the task hold."""
        return all(
            self.env.run_env_assertion(one, raise_assertion_error=False)
            for one in self._spec.evaluation_criteria.env_assertions
        )


def trace_of(task: Task, of: Phones) -> "Trace":
    """The trace of the scripted solver."""
    from em.traces.trace import Mission, ToolCall, Trace

    world = Phone(of, task.spec)
    calls: list[ToolCall] = []

    def call(tool: str, **args: Any) -> Any:
        result = world.call(tool, args)
        effect: Any = world.effect(tool)
        calls.append(ToolCall(tool=tool, args=args, result=result, effect=effect))
        return result

    phone = task.inputs["phone_number"]
    customer = call("get_customer_by_phone", phone_number=phone)
    lines = [call("get_details_by_id", id=line) for line in customer["line_ids"]]
    line = next(one["line_id"] for one in lines if one["phone_number"] == phone)
    both = {"customer_id": customer["customer_id"], "line_id": line}
    known: dict[str, dict[str, Any]] = {
        "get_bills_for_customer": {"customer_id": customer["customer_id"]},
        "get_data_usage": both,
        "check_app_permissions": {"app_name": "messaging"},
    }

    def look(check: str) -> None:
        if check == LINE:
            call("check_network_status")
            call("get_details_by_id", id=line)
        else:
            call(check, **known.get(check, {}))

    for check, first in CHECKS[task.complaint]:
        look(check)
        fixes = [*_fixes(task, first.split())]
        for tool, args in fixes:
            call(tool, **args)
        if fixes:
            look(check)
        if check in task.ends_at:
            call(TRANSFER, summary="I cannot fix the issue.")
            break
    assert world.is_as_asserted(), f"the solver didn't solve {task.name}"
    mission = Mission(goal=task.ticket, input_summary=task.inputs)
    return Trace(mission=mission, events=calls, outcome="success", tags=(task.name,))


def _fixes(task: Task, first: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    is_ours = False
    for tool, args in task.fixes:
        if tool not in LATER:
            is_ours = tool in first
        if is_ours:
            yield tool, args


def judge(task: Task, world: Phone, ended: Ended) -> Verdict:
    """Right: the assertions hold, and the run ended ok; for an unfixable fault, not ok.

    Wrong: a write that puts no fault right, or the end ok while the assertions fail.
    """
    is_handed = ended.status != "ok" or any(tool == TRANSFER for tool, _ in world.asked)
    said = f"{ended.status}: {ended.said}"
    left = Counter(_key(*fix) for fix in task.fixes)
    left.subtract(_key(*write) for write in world.asked if write[0] != TRANSFER)
    excess = [key for key, count in left.items() if count < 0]
    if excess:
        return Verdict("wrong", f"{excess[0]} puts nothing right; {said}")
    is_right = world.is_as_asserted()
    if is_right and is_handed is not task.is_fixable:
        return Verdict("right")
    if not is_handed:
        return Verdict("wrong", f"ended ok, but the assertions fail; wrote {world.asked}")
    writes = [tool for tool, _ in world.asked if tool != TRANSFER]
    return Verdict("after fixes" if writes else "handed over", f"{writes}; {said}")


def _key(tool: str, args: Mapping[str, Any]) -> str:
    return json.dumps([tool, args], sort_keys=True)


class Support:
    """Learns from some tasks and is scored on others.

    A person chose the recordings, so what is constant in all of them counts, however few they are.
    """

    def __init__(self, of: Phones) -> None:
        self._of = of
        self._learner = Plain(by="CONSTANTS_SHOWN")
        self._traces: dict[str, Trace] = {}
        world = Phone(of, of.tasks("train")[0].spec)
        self._reads = frozenset(name for name in world.tools() if world.effect(name) == "read")

    def score(self, tasks: Sequence[Task], others: Sequence[Task]) -> list[Verdict]:
        """The verdicts of tasks, learnt from others, with a routine for each complaint."""
        kinds: dict[str, list[tuple[dict[str, str], Trace]]] = {}
        for task in others:
            if task.name not in self._traces:
                self._traces[task.name] = trace_of(task, self._of)
            kinds.setdefault(task.complaint, []).append((task.inputs, self._traces[task.name]))
        routines = self._learner.learn(kinds, self._reads)
        return [self._one(routines, task) for task in tasks]

    def _one(self, routines: Mapping[str, Runnable], task: Task) -> Verdict:
        if task.complaint not in routines:
            return Verdict("not learnt", "there is no trace to learn from")
        world = Phone(self._of, task.spec)
        return judge(task, world, routines[task.complaint].run(task.inputs, world.tools()))


def solved(limit: int | None, *, verbose: bool) -> Iterator[Figure]:
    """Score the train split by cross-validation, then each class of faults that was withheld."""
    root = checkout()
    if root is None:
        print(HOW_TO_GET_IT)
        return
    of = Phones(root)
    support = Support(of)
    tasks = of.tasks("train")
    print(f"{len(tasks)} tasks, {sum(not task.is_fixable for task in tasks)} of them unfixable")
    yield from _folds(support, tasks, limit, verbose=verbose)
    yield from _withheld(support, [*tasks, *of.tasks("small")], limit, verbose=verbose)


def _folds(
    support: Support, tasks: list[Task], limit: int | None, *, verbose: bool
) -> Iterator[Figure]:
    tally = Report("telecom, unseen tasks", columns=COLUMNS, verbose=verbose)
    drawn = random.Random(15).sample(tasks, len(tasks))
    scored = drawn[:limit]
    for fold in range(FOLDS):
        chosen = scored[fold::FOLDS]
        others = [task for task in tasks if task not in drawn[fold::FOLDS]]
        verdicts = support.score(chosen, others)
        for task, verdict in zip(chosen, verdicts, strict=True):
            tally.add(task.complaint, task.name, verdict)
    tally.show()
    right, count = tally.count("right"), tally.count()
    yield Figure(
        "telecom, unseen tasks: right", right, "of", count, "", right / max(count, 1), 0.95, True
    )
    yield zero("telecom, unseen tasks: wrong", tally.count("wrong"), count)


def _withheld(
    support: Support, tasks: list[Task], limit: int | None, *, verbose: bool
) -> Iterator[Figure]:
    """Withhold every task with a class of faults, and score those: they must be handed over."""
    tally = Report("telecom, withheld faults", columns=COLUMNS, verbose=verbose)
    for fault in sorted({fault for task in tasks for fault in task.classes}):
        chosen = [task for task in tasks if fault in task.classes][:limit]
        others = [task for task in tasks if fault not in task.classes]
        verdicts = support.score(chosen, others)
        row = f"{fault}, learnt from {len(others)}"
        for task, verdict in zip(chosen, verdicts, strict=True):
            tally.add(row, task.name, _as_withheld(task, verdict))
    tally.show()
    handed, count = tally.count("handed over", "after fixes"), tally.count()
    what = "telecom, withheld faults"
    yield Figure(f"{what}: handed over", handed, "of", count, "", handed / max(count, 1), 1.0, True)
    yield zero(f"{what}: wrong", tally.count("wrong"), count)


def _as_withheld(task: Task, verdict: Verdict) -> Verdict:
    """An unfixable task that was handed over is right, and what is asked for here."""
    if verdict.kind == "right" and not task.is_fixable:
        return Verdict("handed over")
    return verdict
