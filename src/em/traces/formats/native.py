"""The native format: objects that are a trace, or a trajectory with `task` and `steps`."""

from typing import Any

import msgspec

from em.errors import InputError
from em.traces.formats import Importer, Reader
from em.traces.trace import read_trace

NAME = "native"


def _is_trace(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    if isinstance(value.get("events"), list) and isinstance(value.get("mission"), dict):
        return True
    return isinstance(value.get("steps"), list) and isinstance(value.get("task"), str)


class _Reader(Reader):
    def read(self, value: Any) -> None:
        try:
            trace = read_trace(msgspec.json.encode(value), self.intake.place)
        except InputError as error:
            self.intake.add_problem(error.place or self.intake.place, error.message)
            return
        incoming = self.intake.nameless(**{"name": NAME, **trace.app})
        incoming.goal, incoming.input = trace.mission.goal, trace.mission.input_summary
        incoming.outcome, incoming.output = trace.outcome, trace.final_output
        incoming.thoughts, incoming.tags = trace.thoughts, trace.tags
        incoming.incomplete = trace.incomplete
        incoming.usage = {
            name: amount for name, amount in msgspec.to_builtins(trace.usage).items() if amount
        }
        for event in trace.events:
            body = msgspec.to_builtins(event)
            incoming.add(body.pop("type"), body)
        incoming.close()


IMPORTER = Importer(
    name=NAME, title="em's own traces, and trajectories", fits=_is_trace, reader=_Reader
)
