"""The databases and tools of a tau-bench checkout, and worlds in which one run may write.

Nothing of tau-bench is in this repository: `EM_TAU_BENCH` names a checkout. Its packages are
loaded without their `__init__`, which would import model clients.
"""

import importlib
import inspect
import json
import os
import random
import sys
from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

CHECKOUT = "EM_TAU_BENCH"
HOW_TO_GET_IT = (
    f"{CHECKOUT} names no checkout of tau-bench; get one with\n"
    "    git clone https://github.com/sierra-research/tau-bench\n"
    f"    export {CHECKOUT}=$PWD/tau-bench\n"
    "The parts that need its tools and databases are passed over."
)
WRITES = {
    "retail": frozenset(
        "cancel_pending_order exchange_delivered_order_items modify_pending_order_address"
        " modify_pending_order_items modify_pending_order_payment modify_user_address"
        " return_delivered_order_items".split()
    ),
    "airline": frozenset(
        "book_reservation cancel_reservation send_certificate update_reservation_baggages"
        " update_reservation_flights update_reservation_passengers".split()
    ),
}
UNORDERED = frozenset({"items", "orders", "reservations", "saved_passengers", "search"})
"""Lists in results whose order says nothing. Legs of a trip and payments have an order."""
TRANSFER = "transfer_to_human_agents"
"""A call with an effect that the database doesn't show."""


class ToolError(Exception):
    """What a tool answered instead of a result."""


class Domain(NamedTuple):
    """The tools, the records by table and the tasks of a domain; nobody may change them."""

    name: str
    tools: Mapping[str, Any]
    tables: Mapping[str, Mapping[str, Any]]
    tasks: Mapping[str, list[Any]]

    @property
    def writes(self) -> frozenset[str]:
        return WRITES[self.name]


def checkout() -> Path | None:
    path = Path(os.environ.get(CHECKOUT, ""))
    return path if (path / "tau_bench" / "envs").is_dir() else None


@cache
def domain(name: str) -> Domain:
    root = checkout()
    assert root is not None, HOW_TO_GET_IT
    envs = root / "tau_bench" / "envs"
    hollow("tau_bench", root / "tau_bench")
    hollow("tau_bench.envs", envs)
    hollow(f"tau_bench.envs.{name}", envs / name)
    types = hollow("tau_bench.types", root)
    types.__dict__.update(Task=SimpleNamespace, Action=SimpleNamespace)
    tools = importlib.import_module(f"tau_bench.envs.{name}.tools").ALL_TOOLS
    data = importlib.import_module(f"tau_bench.envs.{name}.data").load_data()
    tasks = {
        file.stem.removeprefix("tasks_"): _tasks_in(name, file.stem)
        for file in sorted((envs / name).glob("tasks_*.py"))
    }
    by_name = {tool.get_info()["function"]["name"]: tool for tool in tools}
    return Domain(name, by_name, data, tasks)


def hollow(name: str, folder: Path) -> ModuleType:
    """Enter a package whose modules can be imported, without running its `__init__`."""
    module = sys.modules.setdefault(name, ModuleType(name))
    module.__path__ = [str(folder)]
    return module


def _tasks_in(name: str, module: str) -> list[Any]:
    found = importlib.import_module(f"tau_bench.envs.{name}.{module}")
    return next(value for key, value in vars(found).items() if key.startswith("TASKS"))


class Table(dict[str, Any]):
    """Records of which each is copied when it is first looked up: a tool may change it then."""

    def __init__(self, records: Mapping[str, Any]) -> None:
        super().__init__(records)
        self.records = records
        self.own: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        if key not in self.own and key in self.records:
            super().__setitem__(key, deepcopy(self.records[key]))
            self.own.add(key)
        return super().__getitem__(key)

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        self.own.add(key)

    def get(self, key: str, default: Any = None) -> Any:
        try:
            return self[key]
        except KeyError:
            return default

    def changes(self) -> dict[str, str]:
        """The records that differ from the first ones, as text; a removed one as nothing."""
        texts = {key: _text(super(Table, self).__getitem__(key)) for key in self.own if key in self}
        changed = {
            key: text
            for key, text in texts.items()
            if key not in self.records or text != _text(self.records[key])
        }
        return changed | dict.fromkeys(self.records.keys() - self.keys(), "")


def _text(record: Any) -> str:
    return json.dumps(record, sort_keys=True)


class Write(NamedTuple):
    """A call of a tool that writes, and its error if it was refused by the tool."""

    tool: str
    args: dict[str, Any]
    error: str = ""


class World:
    """A fresh database, the tools on it, and the writes that they were asked for.

    order: how the tools' results are given back: as they are, with shuffled `keys`, or with
    shuffled keys and unordered `lists`.
    """

    def __init__(self, of: Domain, order: str = "as is", seed: str = "") -> None:
        self.domain = of
        self.data = {name: Table(records) for name, records in of.tables.items()}
        self.asked: list[Write] = []
        self._order = order
        self._random = random.Random(seed)

    def tools(self) -> dict[str, Callable[..., Any]]:
        """The tools as a user of em gives them: results are values, errors are raised."""
        return {name: self._tool(name) for name in self.domain.tools}

    def _tool(self, name: str) -> Callable[..., Any]:
        from em.traces.formats._messages import as_value

        def call(**args: Any) -> Any:
            said = self.say(name, args)
            if said.startswith("Error"):
                raise ToolError(said)
            return self._shuffled(as_value(said), name.partition("_")[0])

        call.__name__ = name
        signature = inspect.signature(self.domain.tools[name].invoke)
        parameters = [one for one in signature.parameters.values() if one.name != "data"]
        call.__dict__["__signature__"] = signature.replace(parameters=parameters)
        return call

    def say(self, name: str, args: Mapping[str, Any]) -> str:
        """What a tool answers, as tau-bench gives it to an agent."""
        given = deepcopy(dict(args))
        if name not in self.domain.tools:
            return f"Unknown action {name}"
        try:
            said = str(self.domain.tools[name].invoke(data=self.data, **given))
        except Exception as error:  # noqa: BLE001 - as tau-bench does: it is the tool's answer
            said = f"Error: {error}"
        if name in self.domain.writes or name == TRANSFER:
            failed = said if said.startswith("Error") else ""
            self.asked.append(Write(name, deepcopy(dict(args)), failed))
        return said

    def _shuffled(self, value: Any, name: str) -> Any:
        if self._order == "as is":
            return value
        if isinstance(value, dict):
            keys = list(value)
            self._random.shuffle(keys)
            return {key: self._shuffled(value[key], key) for key in keys}
        if isinstance(value, list):
            items = [self._shuffled(item, "") for item in value]
            if self._order == "lists" and name in UNORDERED:
                self._random.shuffle(items)
            return items
        return value

    @property
    def written(self) -> list[Write]:
        """The writes that the database took."""
        return [one for one in self.asked if not one.error and one.tool in self.domain.writes]

    def changes(self) -> dict[tuple[str, str], str]:
        """What differs from the untouched database. Two databases are equal if these are."""
        return {
            (name, key): text
            for name, table in self.data.items()
            for key, text in table.changes().items()
        }


def digest(of: Domain) -> str:
    """A digest of the records that all worlds share, to prove that no run changed them."""
    return sha256(_text(of.tables).encode()).hexdigest()
