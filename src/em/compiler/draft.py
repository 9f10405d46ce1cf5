"""Draft: a routine built from a trace by pruning, wiring and naming, and how it came about."""

import importlib
import inspect
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from em.compiler.arguments import OUTPUT, Arguments, Mode, Wired
from em.compiler.calls import (
    Names,
    TracedApproval,
    TracedCall,
    Verdict,
    calls_of,
    identifier,
    judge,
    result_name,
    specs_of,
    unused,
)
from em.compiler.contradictions import Contradiction, contradictions
from em.compiler.evidence import ENOUGH, information
from em.compiler.expectations import expectations
from em.compiler.explanations import Explained, Explainer
from em.compiler.goal_checks import looks, part_of, shown, written
from em.compiler.guards import Guard, Guards, forms_of
from em.compiler.inputs import Input, Inputs, Use, named_value, with_names
from em.compiler.sources import Sources, quoted, text_key
from em.errors import InputError
from em.redaction.redactor import MARKER
from em.runner.agreement import deeper
from em.runner.authorship import is_model_written, model_of
from em.runner.expressions.language import whole_expression
from em.runner.routine import (
    Asked,
    AssertStep,
    FieldType,
    Prompt,
    PromptField,
    PromptStep,
    ReturnStep,
    Routine,
    Secret,
    Step,
    ToolSpec,
    ToolStep,
    UdfStep,
)
from em.runner.tools import Function, functions_of, load_module
from em.runner.trial import Trials
from em.traces.trace import Outcome, Trace
from em.values.call import Effect, Usage
from em.values.canonical import Json, digest_unordered
from em.values.json_schema import of_input, of_output
from em.values.leaves import leaves, texts

MAX_ROUNDS = 8
MANY_CALLS = 200


class Recorded(msgspec.Struct, frozen=True):
    """A recorded call that a replay of the routine must repeat exactly."""

    step: str
    name: str
    is_udf: bool
    args: Json
    result: Any


class Draft(msgspec.Struct, frozen=True):
    """A routine, with everything known about how it was compiled."""

    routine: Routine
    input: Json
    output: Any
    recording: Sequence[Recorded]
    answers: Mapping[str, Json]
    calls: Sequence[TracedCall]
    verdicts: Sequence[Verdict]
    explained: Sequence[Explained]
    comments: Mapping[str, Sequence[str]]
    usage: Usage = Usage()
    secrets: Mapping[str, str] = {}
    contradictions: Sequence[Contradiction] = ()
    confirmed: Sequence[tuple[str, str]] = ()
    """The arguments that a person confirmed as constants, by step and place."""
    proof: Sequence[str] = ()
    """What replays have shown and what not, in sentences."""
    trials: Trials = Trials()
    """How it did on traces that it was not learnt from."""
    udf_source: str = ""
    """The text of udf.py, if it holds more than stubs."""
    written_by: str = ""
    """The model that wrote `udf_source`."""
    outcome: Outcome = "success"
    """What the trace says about its outcome."""


def draft_routine(
    trace: Trace,
    *,
    name: str,
    declared: Mapping[str, Effect | None],
    keep_all: bool = False,
    keep: Collection[int] = (),
) -> Draft:
    """Build a routine from a trace; with `keep_all` from every call that succeeded.

    keep: numbers of reads that stay though nothing uses them here; other traces need them.
    """
    calls, approvals = calls_of(trace, declared)
    if keep_all:
        verdicts = [
            Verdict(not call.failed, "failed" if call.failed else "--keep-all") for call in calls
        ]
        return _Builder(trace, calls, approvals, verdicts, name).build()
    verdicts = judge(calls)
    for _ in range(MAX_ROUNDS):
        builder = _Builder(trace, calls, approvals, verdicts, name)
        draft = builder.build()
        needed = builder.used | builder.identifying | builder.checking
        idle = [
            call.index
            for call in calls
            if verdicts[call.index].keep
            and call.effect == "read"
            and call.index not in needed
            and call.index not in keep
        ]
        idle = _but_the_last(idle, verdicts) if idle else []
        # The next round finds reads that only these ones used.
        for index in idle:
            verdicts[index] = unused(verdicts[index])
        if not idle:
            break
        if len(calls) > MANY_CALLS and len(idle) < len(calls) / MANY_CALLS:
            # Of a long trace a few reads are cut out; building it again would take twice as long.
            return builder.without(draft, idle)
    return draft


def _but_the_last(idle: list[int], verdicts: list[Verdict]) -> list[int]:
    """Keep the last read if it is all that is left: the routine must not just repeat an answer."""
    kept = [index for index, verdict in enumerate(verdicts) if verdict.keep]
    if len(idle) < len(kept):
        return idle
    last = idle[-1]
    verdicts[last] = Verdict(True, "nothing uses its result, but no other call is left")
    return idle[:-1]


def _field_type(answer: Any) -> FieldType:
    if isinstance(answer, bool):
        return "confirm"
    return "text" if answer is None or isinstance(answer, str) else "json"


def _is_answer(name: str, answer: Any) -> str:
    """Return an expression that holds if the answer equals the recorded one."""
    if isinstance(answer, bool):
        return name if answer else f"not {name}"
    return f"{name} is none" if answer is None else f"{name} == {quoted(answer)}"


class _Builder:
    """Builds a routine in passes: they find the inputs of effects, then of reads, then the steps.

    An input that an effect is asked for may explain a read before it, so all of them must be known
    before the first step is written.
    """

    def __init__(
        self,
        trace: Trace,
        calls: Sequence[TracedCall],
        approvals: Sequence[TracedApproval],
        verdicts: Sequence[Verdict],
        name: str,
    ) -> None:
        self._trace, self._calls, self._verdicts, self._name = trace, calls, verdicts, name
        self._approvals = list(approvals)
        self._ids = Names()
        self._names = Names()
        mission = trace.mission
        said = [calls[-1].said] if calls else []
        self._inputs = Inputs(
            mission.input_summary, mission.goal, said, self._names, _mark_for(trace)
        )
        self._kept = [call for call in calls if verdicts[call.index].keep]
        effects = [call for call in self._kept if call.effect == "write"]
        self._saved = self._result_names(Names())
        self._asked: dict[tuple[int, str], Input] = {}
        self._is_reading = not effects
        self._start()
        self._steps: list[Step] = []
        self._recording: list[Recorded] = []
        self._answers: dict[str, Json] = {}
        self._step_of: dict[int, str] = {}
        self._needs: dict[int, frozenset[int]] = {}
        self._decides = False
        self.used: set[int] = set()
        self.identifying: set[int] = set()
        """Reads whose arguments come from the request."""
        self.checking: set[int] = set()
        """Reads after an effect that must show it."""
        self._looks = {one.read.index: one for one in looks(calls)}
        self._given: dict[int, Json] = {}

    def _result_names(self, names: Names) -> dict[int, str]:
        """Return the name of each call's result; the names of inputs come first."""
        inputs = {identifier(one.wanted_name.name) for one in self._inputs.made}
        saved = {}
        for call in self._kept:
            name = result_name(call.title, is_write=call.effect == "write")
            saved[call.index] = names.free(f"{name}_found" if name in inputs else name)
        return saved

    def _start(self) -> None:
        """Begin a pass: no result is known yet."""
        self._sources = Sources()
        self._explainer = Explainer(self._inputs, self._sources)
        self._known = Guards(self._sources, self._inputs.of_value)
        self._arguments = Arguments(
            self._inputs, self._sources, self._explainer, self._asked, is_reading=self._is_reading
        )

    def build(self) -> Draft:
        """Build the routine."""
        for effects_only in (True, False):
            for call in self._kept:
                if call.effect == "write" or not effects_only:
                    self._wire(call)
                self._learn(call)
            self._start()
        # All inputs are known now, and have the first choice of names.
        self._saved = self._result_names(self._names)
        for call in self._calls:
            self._ask_before(call.index)
            if self._verdicts[call.index].keep:
                self._add(call)
        self._ask_before(len(self._calls))
        output = self._add_return()
        self._contradictions = self._contradicted()
        return self._finished(output)

    def _finished(self, output: Any) -> Draft:
        if any(not one.is_said for one in self._inputs.made):
            # What was read about the task may be the reason for a value that nothing explains.
            self.used |= self.identifying
        drafted = self._ordered_steps()
        self._inputs.drop_unused(drafted)
        named = self._inputs.named()
        steps = [_renamed_step(step, named) for step in drafted]
        routine = Routine(
            name=self._name,
            description=self._trace.mission.goal,
            tools=self._tools(),
            secrets=tuple(Secret(name) for name in self._arguments.secrets.values()),
            steps=steps,
        )
        inputs, asks = self._named_inputs(routine, named)
        request = self._inputs.request(named, decides=self._decides, whole=inputs)
        returned = next(step.value for step in steps if isinstance(step, ReturnStep))
        routine = msgspec.structs.replace(
            routine,
            input_schema=of_input(
                inputs,
                asked=asks,
                request=request.input if request else None,
                titles=self._inputs.recorded_names(),
            ),
            output_schema=of_output(returned, output) or None,
            request=request,
            asks=asks,
            seen=self._seen() if any(not one.is_unused for one in asks.values()) else {},
        )
        order = {step.id: number for number, step in enumerate(steps)}
        return Draft(
            routine=routine,
            input=inputs,
            output=output,
            recording=sorted(self._recording, key=lambda item: order[item.step]),
            answers=self._answers,
            calls=self._calls,
            verdicts=self._verdicts,
            explained=[_renamed_note(one, named) for one in self._arguments.all_explained()],
            comments=self._comments(named),
            usage=self._trace.recorded_usage,
            secrets={name: text for text, name in self._arguments.secrets.items()},
            contradictions=self._contradictions,
        )

    def without(self, draft: Draft, idle: Sequence[int]) -> Draft:
        """Return a draft without the steps of some reads, whose results nothing uses."""
        ids = {self._step_of[index] for index in idle}
        steps = [step for step in draft.routine.steps if step.id not in ids]
        return msgspec.structs.replace(
            draft,
            routine=msgspec.structs.replace(draft.routine, steps=steps),
            recording=[item for item in draft.recording if item.step not in ids],
            verdicts=self._verdicts,
        )

    def _named_inputs(self, routine: Routine, named: Mapping[str, str]) -> tuple[Json, Any]:
        """Return the recorded inputs, and those of them that are asked for.

        An input of the task that no step uses is asked for as well: it may have been the reason for
        something that was done.
        """
        stated = self._inputs.stated_values()
        asks = self._inputs.asked(named)
        used = names_used(routine)
        used |= {name for one in asks.values() for text in one.candidates for name in _words(text)}
        for name, value in stated.items():
            if name not in used and not self._is_reading:
                asks[name] = Asked(recorded=value, is_unused=True)
        secret = self._arguments.secrets.values()
        kept = {
            name: value
            for name, value in stated.items()
            if (name in used or name in asks) and name not in secret
        }
        kept |= {n: text for n, text in self._inputs.stated_texts().items() if n in used}
        return kept | {named[one.token]: one.value for one in self._inputs.made}, asks

    def _seen(self) -> dict[str, str]:
        """Return hashes of what reads returned that later steps use.

        A result that held a secret is not the same as the recorded one, which is redacted.
        """
        return {
            self._saved[call.index]: digest_unordered(call.result)
            for call in self._kept
            if call.effect == "read"
            and call.index in self.used
            and not any(map(MARKER.search, texts(call.result)))
        }

    # --- calls ------------------------------------------------------------------------------------

    def _wire(self, call: TracedCall) -> Wired:
        use = Use("", call.name, call.effect == "write")
        mode: Mode = "effect" if call.effect == "write" else "read"
        parts = {
            name: self._arguments.wire(
                value, use._replace(name=name), call.index, deeper("args", name), mode
            )
            for name, value in self._together(call.args)
        }
        return Wired.joined({name: part.value for name, part in parts.items()}, [*parts.values()])

    def _together(self, args: Json) -> Iterator[tuple[str, Any]]:
        self._explainer.read_together(args)
        self._inputs.say_together(args)
        self._arguments.take_roles(args)
        yield from args.items()
        self._explainer.read_together({})
        self._inputs.say_together({})
        self._arguments.take_roles({})

    def _learn(self, call: TracedCall) -> None:
        """Let later values come from a call's result."""
        saved = self._saved[call.index]
        if call.effect == "write":
            self._sources.add_made(call.index, saved, call.args, call.result)
            for _, value in leaves(call.result):
                if self._sources.is_made_by(value, call.index):
                    self._explainer.fresh.setdefault(text_key(value), call.index)
        else:
            self._sources.add(call.index, saved, call.result)
            if call.is_udf:
                self._explainer.computed.add(call.index)
            else:
                self._known.learn(call)
            self._explainer.read_by |= {text_key(value) for _, value in leaves(call.args)}

    def _add(self, call: TracedCall) -> None:
        wired = self._wire(call)
        step_id = self._ids.free(identifier(call.title))
        saved = self._saved[call.index]
        common: dict[str, Any] = {"id": step_id, "args": wired.value, "save_as": saved}
        common["agree"] = {_without_args(place): t for place, t in wired.agree.items()}
        needs = set(wired.calls)
        if call.effect == "write":
            guards = self._guards(wired, call.name)
            common["guards"] = tuple(guard.check for guard in guards)
            common["expects"] = tuple(expectations(call))
            self._given[call.index] = wired.value
            needs |= {index for guard in guards for index in guard.calls}
            needs |= self._chosen_from(call)
            self._decides = self._decides or not wired.follows_request
        else:
            if self._is_identifying(call):
                self.identifying.add(call.index)
            common["expects"] = self._goal_checks(call)
            if common["expects"]:
                self.checking.add(call.index)
        if call.effect_unknown:
            common["on_error"] = "continue"
        self._steps.append(
            UdfStep(function=call.name, **common)
            if call.is_udf
            else ToolStep(tool=call.name, **common)
        )
        self.used |= needs
        self._needs[call.index] = frozenset(needs)
        self._step_of[call.index] = step_id
        self._learn(call)
        self._recording.append(Recorded(step_id, call.name, call.is_udf, call.args, call.result))

    def _goal_checks(self, read: TracedCall) -> tuple[str, ...]:
        """Return what a read after an effect must show."""
        look = self._looks.get(read.index)
        if look is None or look.write.index not in self._given or not look.is_known:
            return ()
        values = [
            (one, part_of(self._given[look.write.index], one.given)) for one in written([look])
        ]
        checks = [one.check(value) for one, value in values if value is not None]
        return (*shown([look]), *checks)

    def _guards(self, wired: Wired, tool: str) -> list[Guard]:
        guards = self._known.of(wired.acted, tool)
        for one in wired.acted:
            if one.is_column and all(map(_is_id, one.value)):
                members = self._explainer.memberships(one.value, one.expression)
                guards += [Guard(check, calls) for check, calls in members]
        guards += forms_of(wired.acted, set(self._sources.names.values()))
        written = " ".join(texts(wired.value))
        guards += [Guard(check, frozenset()) for check in self._inputs.lengths(written)]
        return list(dict.fromkeys(guards))

    def _chosen_from(self, call: TracedCall) -> set[int]:
        """Return the reads that held a value which nothing explains: it may be chosen there.

        What a careful person would check about it must still be the same.
        """
        reads: set[int] = set()
        for one in self._arguments.explained.get(call.index, {}).values():
            token = whole_expression(one.wired) if one.how == "asked" else None
            for _, value in leaves(one.recorded) if token is not None else ():
                for group in self._sources.groups(value) if _is_id(value) else ():
                    check = self._known.find(str(token).strip(), value, group)
                    self._inputs.must_find(str(token).strip(), check.check)
                    reads |= check.calls
        return reads

    def _is_identifying(self, call: TracedCall) -> bool:
        """Return whether an argument of a read comes from the request."""
        found = self._arguments.explained.get(call.index, {}).values()
        return any(one.how in ("said", "input") and one.bits >= ENOUGH for one in found)

    # --- order ------------------------------------------------------------------------------------

    def _ordered_steps(self) -> list[Step]:
        """Return the steps, with reads that an effect needs before the first effect if they can be.

        So a refusal comes before anything was done. A read stays behind an effect that it may
        show: one whose result it uses, or on the same thing.
        """
        index_of = {step_id: index for index, step_id in self._step_of.items()}
        early: list[Step] = []
        late: list[Step] = []
        moved: set[int] = set()
        touched: set[str] = set()
        needed, last_use = self._needed_by_effects(), self._last_uses()
        for step in self._without_idle_names():
            index = index_of.get(step.id)
            call = None if index is None else self._calls[index]
            is_read = call is not None and call.effect == "read"
            if call is not None and not is_read:
                touched |= _ids(call.args)
            if not late and is_read:
                can_be_early = True
            else:
                can_be_early = (
                    call is not None
                    and is_read
                    and call.index in needed
                    and self._may_move(call, touched, moved, last_use)
                )
            (early if can_be_early else late).append(step)
            if can_be_early and call is not None:
                moved.add(call.index)
        return [*early, *late]

    def _may_move(
        self, read: TracedCall, touched: set[str], moved: set[int], last_use: Mapping[str, int]
    ) -> bool:
        ids = _ids(read.args)
        # Without an id it reads how things are now, such as a page.
        if read.is_udf or not ids or not ids.isdisjoint(touched):
            return False
        if not self._needs[read.index] <= moved:
            return False
        made = {
            key
            for _, value in leaves(read.result)
            if (key := text_key(value)) in self._explainer.fresh
            and last_use.get(key, -1) > read.index
        }
        return all(self._inputs.has(key) for key in made)

    def _needed_by_effects(self) -> set[int]:
        """Return the calls whose results an effect needs, also by way of other reads."""
        needed: set[int] = set()
        for call in reversed(self._kept):
            if call.effect == "write" or call.index in needed:
                needed |= self._needs.get(call.index, frozenset())
        return needed

    def _last_uses(self) -> dict[str, int]:
        """Return the last call that was made with each value."""
        return {
            text_key(value): call.index for call in self._kept for _, value in leaves(call.args)
        }

    def _ask_before(self, index: int) -> None:
        while self._approvals and self._approvals[0].index <= index:
            approval = self._approvals.pop(0)
            step_id = self._ids.free("approval")
            saved = self._names.free("approval")
            wired = self._arguments.wire(
                approval.prompt, Use("", "approval", False), index, "approval", "output"
            )
            self.used |= wired.calls
            message = wired.value
            field = PromptField(
                name="answer",
                type=_field_type(approval.answer),
                required=approval.answer is not None,
            )
            prompt = Prompt(message=message, fields=[field])
            self._steps.append(PromptStep(id=step_id, prompt=prompt, save_as=saved))
            self._answers[step_id] = {"answer": approval.answer}
            # The following steps are right only after this answer.
            self._steps.append(
                AssertStep(
                    id=self._ids.free("as_approved"),
                    check=_is_answer(f"{saved}.answer", approval.answer),
                    message="the answer differs from the recorded one, which this routine follows",
                )
            )

    def _add_return(self) -> Any:
        output = self._trace.final_output
        kept = [call for call in self._calls if self._verdicts[call.index].keep]
        if output is msgspec.UNSET:
            writes = [call for call in kept if call.effect == "write"]
            last = (writes or kept)[-1:]
            output = last[0].result if last else None
            if last and last[0].index in self._saved:
                self.used.add(last[0].index)
                return self._return(f"{{{{ {self._saved[last[0].index]} }}}}", output)
        use = Use("", "output", False)
        wired = self._arguments.wire(output, use, len(self._calls), OUTPUT, "output")
        self.used |= wired.calls
        return self._return(wired.value, output)

    def _return(self, value: Any, output: Any) -> Any:
        self._steps.append(ReturnStep(id=self._ids.free("return"), value=value))
        return output

    def _contradicted(self) -> list[Contradiction]:
        output = self._trace.final_output
        if output is msgspec.UNSET:
            return []
        said = self._calls[-1].said if self._calls else ""
        return contradictions(output, self._calls, self._trace.mission.input_summary, said)

    def _tools(self) -> list[ToolSpec]:
        kept = (call for call in self._calls if self._verdicts[call.index].keep)
        return list(specs_of(kept).values())

    def _without_idle_names(self) -> list[Step]:
        """Return the steps without `save_as` names that nothing refers to."""
        used = {self._step_of[index] for index in self.used if index in self._step_of}
        return [
            msgspec.structs.replace(step, save_as=None)
            if isinstance(step, ToolStep | UdfStep) and step.id not in used
            else step
            for step in self._steps
        ]

    def _comments(self, named: Mapping[str, str]) -> dict[str, list[str]]:
        comments: dict[str, list[str]] = {}
        for found in self._arguments.all_explained():
            step = self._step_of.get(found.call, "return")
            if found.note:
                note = with_names(f"{found.place}: {found.note}", named)
                comments.setdefault(step, []).append(note)
        for contradiction in self._contradictions:
            comments.setdefault("return", []).append(str(contradiction))
        return comments


def _mark_for(trace: Trace) -> str:
    """Return how the tokens of inputs begin: a text that the trace does not contain."""
    mark, text = "IN__", msgspec.json.encode(trace)
    while mark.encode() in text:
        mark += "_"
    return mark


def _without_args(place: str) -> str:
    return place.removeprefix("args").removeprefix(".")


def _is_id(value: Any) -> bool:
    return information(value) >= ENOUGH


def _ids(args: Any) -> set[str]:
    """Return the ids that a call was made with."""
    return {text_key(value) for _, value in leaves(args) if _is_id(value)}


def _renamed_step(step: Step, named: Mapping[str, str]) -> Step:
    """Return a step with the names of its inputs."""
    if isinstance(step, PromptStep):
        message = with_names(step.prompt.message, named)
        prompt = msgspec.structs.replace(step.prompt, message=message)
        return msgspec.structs.replace(step, prompt=prompt)
    if isinstance(step, ReturnStep):
        return msgspec.structs.replace(step, value=named_value(step.value, named))
    if not isinstance(step, ToolStep | UdfStep):
        return step
    return msgspec.structs.replace(
        step,
        args=named_value(step.args, named),
        agree={place: [with_names(t, named) for t in texts] for place, texts in step.agree.items()},
        guards=tuple(with_names(text, named) for text in step.guards),
        expects=tuple(with_names(text, named) for text in step.expects),
    )


def _renamed_note(found: Explained, named: Mapping[str, str]) -> Explained:
    return msgspec.structs.replace(
        found,
        wired=named_value(found.wired, named),
        agree=[with_names(text, named) for text in found.agree],
    )


def _words(expression: str) -> list[str]:
    return re.findall(r"[A-Za-z_]\w*", expression)


def names_used(routine: Routine) -> set[str]:
    """Return the names that the steps of a routine refer to."""
    found: set[str] = set()
    for step in routine.steps:
        value = msgspec.to_builtins(step)
        for text in texts(value):
            for part in re.findall(r"\{\{(.*?)\}\}", text, re.DOTALL):
                found.update(_words(part))
        if isinstance(step, ToolStep | UdfStep):
            for text in (*(t for ts in step.agree.values() for t in ts), *step.guards):
                found.update(_words(text))
    return found


Udfs = Mapping[str, Function] | str | None
"""Functions by name, or where to load them from: `package.module` or a file."""


class GivenUdfs(msgspec.Struct, frozen=True):
    """Functions that the user gave, and the text of their file, if they came from one."""

    functions: Mapping[str, Function] = {}
    text: str = ""
    written_by: str = ""
    """The model that wrote that file, if a model did and a person has read it."""


def load_udfs(udfs: Udfs) -> GivenUdfs:
    """Load the functions of a module, of a file or of a mapping."""
    if not isinstance(udfs, str):
        return GivenUdfs(dict(udfs or {}))
    functions = functions_of(load_module(udfs), imported=True)
    if not udfs.endswith(".py"):
        return GivenUdfs(functions)
    try:
        text = Path(udfs).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"the file must be UTF-8: {error}", place=udfs) from None
    file = Path(udfs).resolve()
    marked = is_model_written(file.parent, file.name)
    return GivenUdfs(
        functions, text, (model_of(file.parent, file.name) or "model") if marked else ""
    )


def import_line(name: str, function: Any) -> str | None:
    """Return the import line for a function under this name; None if it can't be imported."""
    module, own = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if not module or module == "__main__" or not own.isidentifier():
        return None
    try:
        found = inspect.getattr_static(importlib.import_module(module), own, None)
    except ImportError:
        return None
    if found is not function:
        return None
    return f"from {module} import {own}" + (f" as {name}" if own != name else "")
