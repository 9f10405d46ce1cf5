"""A heating with faults that have nothing to do with each other, and recordings of who fixed it."""

from collections.abc import Callable
from typing import Any

from em.traces.trace import Message, Mission, ToolCall, Trace

FIXES = {
    "low": ["refill"],
    "stuck": ["free_pump"],
    "summer": ["set_mode"],
    "air": ["bleed", "close_vents"],
    "leak": ["call_engineer"],
}
"""Faults, and the calls that put them right; for a leak somebody else has to come."""
CHECKS = {
    "check_pressure": "low",
    "check_pump": "stuck",
    "check_mode": "summer",
    "check_radiators": "air",
    "check_gas": "leak",
}
GOAL = "measure_room"
WRITES = {tool for tools in FIXES.values() for tool in tools}


class Boiler:
    """The heating of one home. `useless`: a call that changes nothing; `dies_at`: one that dies."""

    def __init__(self, *faults: str, home: int = 1) -> None:
        self.faults = set(faults)
        self.home, self.id = f"H-{4100 + home}", f"HB{7200 + home}"
        self.done: list[tuple[str, dict[str, Any]]] = []
        self.looks: list[str] = []
        self.useless = self.dies_at = ""
        self.pump = "running"
        self.month = ""

    @property
    def request(self) -> str:
        when = f" Month: {self.month}." if self.month else ""
        return f"The rooms stay cold. Home: {self.home}.{when}"

    def tools(self) -> dict[str, Callable[..., Any]]:
        """Everything that can be called."""

        def tool(name: str, **args: Any) -> Any:
            if name in WRITES:
                return self._fix(name, args)
            self.looks.append(name)
            if name == "find_boiler":
                assert args == {"home": self.home}, args
                return {"boiler_id": self.id, "home": self.home}
            assert args == {"boiler_id": self.id}, args
            return self._shown(name)

        names = ["find_boiler", *CHECKS, GOAL, *sorted(WRITES)]
        return {name: lambda _name=name, **args: tool(_name, **args) for name in names}

    def _shown(self, look: str) -> Any:
        has = self.faults.__contains__
        if look == "check_pressure":
            return {"bar": 0.4 if has("low") else 1.5, "minimum_bar": 1.0, "unit": "bar"}
        if look == "check_pump":
            return f"Pump: {'stuck' if has('stuck') else self.pump}\nPower: on"
        if look == "check_mode":
            return {"mode": "summer" if has("summer") else "winter"}
        if look == "check_radiators":
            return "The radiators gurgle." if has("air") else "The radiators are quiet."
        if look == "check_gas":
            return {"alarm": has("leak")}
        harmful = self.faults - ({"summer"} if self.month == "July" else set())
        return "Room: cold" if harmful or self.pump != "running" else "Room: warm"

    def _fix(self, tool: str, args: dict[str, Any]) -> Any:
        if self.dies_at == tool:
            raise KeyboardInterrupt
        self.done.append((tool, args))
        for fault, tools in FIXES.items():
            if tool == tools[-1] and tool != self.useless:
                self.faults.discard(fault)
        return "done"

    @property
    def made(self) -> list[str]:
        """The calls with an effect that were made."""
        return [tool for tool, _ in self.done]


def recorded(boiler: Boiler, *, looks_first: bool = False) -> Trace:
    """What somebody did who put a heating right: a look, its fix, the look again.

    looks_first: all looks come before the first fix, and again after the last one.
    """
    made = _Recording(boiler)
    made.call("find_boiler", home=boiler.home)
    if looks_first:
        made.look(*CHECKS)
    for look, fault in CHECKS.items():
        if not looks_first:
            made.look(look)
        if made.fix(fault) and not looks_first and fault != "leak":
            made.look(look)
    if looks_first:
        made.look(*CHECKS)
    if "call_engineer" not in boiler.made:
        made.look(GOAL)
    return Trace(mission=Mission(goal=boiler.request), events=made.events, outcome="success")


class _Recording:
    def __init__(self, boiler: Boiler) -> None:
        self._boiler, self._tools = boiler, boiler.tools()
        self.events: list[Any] = [Message(role="user", text=boiler.request)]

    def call(self, tool: str, **args: Any) -> None:
        effect: Any = "write" if tool in WRITES else "read"
        result = self._tools[tool](**args)
        self.events.append(ToolCall(tool=tool, args=args, result=result, effect=effect))

    def look(self, *looks: str) -> None:
        for look in looks:
            self.call(look, boiler_id=self._boiler.id)

    def fix(self, fault: str) -> bool:
        """Put a fault right, if it is there."""
        is_there = fault in self._boiler.faults
        if fault == "summer" and self._boiler.month == "July":
            return False
        more = {"refill": {"bar": 1.5}, "set_mode": {"mode": "winter"}}
        for tool in FIXES[fault] if is_there else ():
            self.call(tool, boiler_id=self._boiler.id, **more.get(tool, {}))
        return is_there
