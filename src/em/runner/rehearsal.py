"""Rehearsal: a run that makes the reads, and plans each call with an effect without making it.

It runs on the machine, with the same questions and checks. Where a real run would stop, to ask or
because it fails, a rehearsal notes that and goes on, so that all calls with an effect can be shown
with what is known about them. What would need the result of a call that was not made must wait.
"""

import ast
import re
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from em.errors import EmError, ExpressionError
from em.runner.drivers import Effect, Effects
from em.runner.expressions.language import (
    HOLDS,
    compile_expression,
    compile_value,
    names_in,
    whole_expression,
)
from em.runner.journal import BlockTurn
from em.runner.machine import Machine, Steps, check_conflict, scopes_of
from em.runner.request import Bound
from em.runner.routine import (
    CompiledStep,
    ForEachStep,
    Program,
    PromptStep,
    Routine,
    Step,
    ToolStep,
    UdfStep,
)
from em.runner.run import (
    Failed,
    Failure,
    Item,
    Pause,
    PendingPrompt,
    Planned,
    PlannedArgument,
    Prepared,
    plain,
)
from em.values import json_schema
from em.values.canonical import Json, identical, short
from em.values.leaves import texts
from em.values.syntax_tree import expression_of


def result_in_words(step: Step) -> list[str]:
    """Say what the result of a step must be like."""
    if step.expect is None:
        return []
    return [f"{one}{_held(step)}" for one in schema_in_words(step.save_as or step.id, step.expect)]


def _held(step: Step) -> str:
    return f" (in {step.held} recordings)" if step.held else ""


def schema_in_words(name: str, schema: Any) -> list[str]:
    """Say what a value must be like: `order` has status; `order.status` is "pending"."""
    if not isinstance(schema, dict):
        return []
    found, rest = [], dict(schema)
    required = rest.pop("required", None)
    if isinstance(required, list) and required:
        found.append(f"`{name}` has {', '.join(map(str, required))}")
    if "const" in rest:
        found.append(f"`{name}` is {short(rest.pop('const'))}")
    if isinstance(rest.get("enum"), list):
        found.append(f"`{name}` is {' or '.join(map(short, rest.pop('enum')))}")
    properties = rest.pop("properties", None)
    if isinstance(properties, dict):
        for field, one in properties.items():
            found += schema_in_words(f"{name}.{field}", one)
    if isinstance(rest.get("items"), dict):
        found += schema_in_words(f"{name}[]", rest.pop("items"))
    if rest and rest != {"type": "object"}:
        found.append(f"`{name}` fits {short(rest)}")
    return found


YOUR_ANSWER = "your answer"
_UNKNOWN = object()
_SKIPPED = object()
_CALLS = ("tool", "udf", "for_each")


class Rehearsal(Machine):
    """One rehearsal of a program. It has no journal, and asks nobody."""

    def __init__(self, *args: Any, lacking: Sequence[str] = (), **options: Any) -> None:
        """Take what a machine takes. lacking: required inputs that have no value yet."""
        super().__init__(*args, **options)
        self._open_inputs = lacking
        self._planned: list[Planned] = []
        # The names that have no value, each with what would give it.
        self._lacking: dict[str, str] = {one: f"the input {one}" for one in lacking}
        self._question: PendingPrompt | None = None
        self._problem: Failure | None = None
        self._has_output = False
        # Whether the problem comes after a call with an effect, in a real run.
        self._is_late = False
        # The last call that was not made, and the names that were read after one, each with that
        # call: they may differ.
        self._written = ""
        self._stale: dict[str, str] = {}
        # The names that the turns of a block lack.
        self._lacking_in_turns: set[str | None] = set()

    @property
    def has_planned_write(self) -> bool:
        """Whether a call with an effect was planned: what is read from now on may differ."""
        return bool(self._written)

    def run(self, input_data: Json) -> Effects[Prepared]:
        """Yield the effects of the reads, then return what was prepared."""
        found = yield from super().run(input_data)
        assert isinstance(found, Prepared)
        return found

    @property
    def scope(self) -> Json:
        """What is known by name: functions, inputs and what was read."""
        return self._scope

    def _with_choice(self, input_data: Json) -> Steps:
        if self._open_inputs:
            return input_data
        return (yield from super()._with_choice(input_data))

    def _take_input(self, given: Json) -> Json:
        return given if self._open_inputs else super()._take_input(given)

    def _steps(self) -> Steps:
        for step in self._program.outer_steps:
            self._begin(step)
            try:
                value = yield from self._tried(step, self._scope, None)
                if step.kind == "return" and value is not _UNKNOWN:
                    self._has_output = True
                    break
                self._keep(step, value)
            except Pause as pause:
                self._question = self._question or pause.prompt
                self._lack(step)
                if not self._acts(step):
                    self._wait(step, [YOUR_ANSWER])
            except Failed as failed:
                self._take(step, failed.failure)
        if self._problem is not None:
            self._calls.has_acted = self._is_late
            raise Failed(self._problem)
        if self._question is not None:
            raise Pause(self._question)
        return value if self._has_output else None

    def _take(self, step: CompiledStep, failure: Failure) -> None:
        """Take the failure of a step, unless a call that was not made may be its cause."""
        self._lack(step)
        if self._is_uncertain(step):
            self._wait(step, [f"the effect of {self._written}"])
        elif self._problem is None:
            self._problem, self._is_late = failure, bool(self._written)

    def _tried(self, step: CompiledStep, scope: Json, turn: BlockTurn | None) -> Steps:
        """Return the value of a step; _UNKNOWN if the step or what it needs was not done."""
        needs = self._needs(step.source)
        if needs:
            self._wait(step, needs, turn)
            return _UNKNOWN
        start = time.perf_counter()
        if step.when is not None and not self._evaluated(step, step.when, scope):
            self._reports.add(step.id, "skipped", 0, start)
            return _SKIPPED
        if step.kind == "return":
            return self._evaluated(step, step.value, scope)
        return (yield from self._do(step, scope, start, turn))

    def _end_block(self, step: CompiledStep, records: list[Json], start: float) -> Any:
        """Return the records of all turns; _UNKNOWN if one lacks the result of a write."""
        names = {one.save_as for one in step.steps} & self._lacking_in_turns
        self._lacking_in_turns -= names
        return _UNKNOWN if names else super()._end_block(step, records, start)

    def _turn(self, steps: Sequence[CompiledStep], scope: Json, turn: BlockTurn) -> Steps:
        """Make the reads of a turn, and plan its writes; return the names that it has saved."""
        outside, saved = dict(self._lacking), dict[str, Any]()
        try:
            for step in steps:
                value = yield from self._tried(step, scope, turn)
                if step.save_as is None or value is _SKIPPED:
                    continue
                if value is _UNKNOWN:
                    self._lacking[step.save_as] = f"the result of {step.id}"
                    self._lacking_in_turns.add(step.save_as)
                else:
                    saved[step.save_as] = scope[step.save_as] = value
        finally:
            self._lacking = outside
        return saved

    def _do(
        self, step: CompiledStep, scope: Json, start: float, turn: BlockTurn | None = None
    ) -> Steps:
        """Do a step if it has no effect; else plan it, and return _UNKNOWN."""
        if step.kind == "prompt":
            return self._shown(step)
        if not self._acts(step) or not isinstance(step.source, ToolStep | UdfStep):
            return (yield from super()._do(step, scope, start, turn))
        self._plan(step, step.source, scope, turn)
        return _UNKNOWN

    def _check_output(self, output: Any) -> None:
        if self._has_output:
            super()._check_output(output)

    def _result(self, status: Any, **rest: Any) -> Prepared:
        found = super()._result(status, **rest)
        return Prepared(**msgspec.structs.asdict(found), planned=self._planned)

    def _keep(self, step: CompiledStep, value: Any) -> None:
        if value is _UNKNOWN:
            self._lack(step)
        elif step.save_as is not None and value is not _SKIPPED:
            names = _names_of(msgspec.to_builtins(step.source)) & self._stale.keys()
            if self._written and (names or step.kind in _CALLS):
                self._stale[step.save_as] = self._written
            check_conflict(step, self._saved, value)
            self._saved[step.save_as] = self._scope[step.save_as] = value

    def _lack(self, step: CompiledStep) -> None:
        if step.save_as is not None and step.save_as not in self._saved:
            of = "the answer to" if step.kind == "prompt" else "the result of"
            self._lacking[step.save_as] = f"{of} {step.id}"

    def _is_uncertain(self, step: CompiledStep) -> bool:
        """Return whether a step may have failed only because a call before it was not made."""
        if not self._written:
            return False
        names = _names_of(msgspec.to_builtins(step.source)) | {step.save_as}
        return step.kind in _CALLS or not names.isdisjoint(self._stale)

    # --- what is shown ----------------------------------------------------------------------------

    def _needs(self, source: Step) -> list[str]:
        if not self._lacking:
            return []
        names = _names_of(msgspec.to_builtins(source))
        if isinstance(source, ForEachStep):
            names -= {*source.saved_names}
        return self._lacks(names)

    def _lacks(self, names: set[str]) -> list[str]:
        found = [what for name, what in self._lacking.items() if name in names]
        return list(dict.fromkeys(found))

    def _wait(self, step: CompiledStep, needs: list[str], turn: BlockTurn | None = None) -> None:
        source = step.source
        if isinstance(source, ToolStep | UdfStep) and self._acts(step):
            self._plan(step, source, self._scope, turn, needs)
        elif isinstance(source, ForEachStep):
            for inner in step.steps:
                self._wait_in_block(inner, needs)
        elif isinstance(source, PromptStep):
            self._planned.append(
                Planned(step=step.id, does="ask", message=source.prompt.message, needs=needs)
            )
        else:
            expects = result_in_words(source)
            self._planned.append(
                Planned(
                    step=step.id,
                    does="wait",
                    tool=step.target,
                    item=_item(turn),
                    needs=needs,
                    expects=expects,
                )
            )

    def _wait_in_block(self, step: CompiledStep, needs: list[str]) -> None:
        """Show the writes of a block of which it is not known yet how often they are made."""
        if step.steps:
            for inner in step.steps:
                self._wait_in_block(inner, needs)
        elif self._acts(step):
            self._written = step.id
            self._planned.append(Planned(step=step.id, does="write", tool=step.target, needs=needs))

    def _shown(self, step: CompiledStep) -> Any:
        """Return the answer that was given to a prompt; else only show it."""
        try:
            return self._ask(step, self._scope)
        except Pause as pause:
            if pause.prompt.problem:
                raise
            message = pause.prompt.message
        self._planned.append(Planned(step=step.id, does="ask", message=message))
        return _UNKNOWN

    def _plan(
        self,
        step: CompiledStep,
        source: ToolStep | UdfStep,
        scope: Json,
        turn: BlockTurn | None,
        needs: Sequence[str] = (),
    ) -> None:
        """Note the calls of a step, one for each of its items. needs: what they wait for."""
        self._written = step.id
        scopes = [(_item(turn), scope)]
        if step.for_each is not None and not needs:
            items = self._evaluated(step, step.for_each, scope)
            each = enumerate(scopes_of(step, items, scope))
            scopes = [(_item(turn, number), own) for number, own in each]
        for item, own in scopes:
            self._planned.append(
                Planned(
                    step=step.id,
                    does="write",
                    tool=step.target,
                    item=item,
                    arguments=list(self._arguments(source, own)),
                    expects=result_in_words(source),
                    needs=needs,
                    shows="" if needs else self._preview(step, own),
                )
            )

    def _preview(self, step: CompiledStep, scope: Json) -> str:
        """Return what the tool would do, or why it would refuse; empty if that is not known."""
        tool = self._tools.get(step.target) if step.kind == "tool" else None
        if tool is None or tool.preview is None:
            return ""
        try:
            return tool.preview(step.args(scope))
        except EmError as error:
            return "" if isinstance(error, ExpressionError) else f"refused: {error}"

    def _arguments(self, source: ToolStep | UdfStep, scope: Json) -> Iterator[PlannedArgument]:
        for place, template, value, error in argument_values(source, scope):
            words, names = self._source(template), _names_of(template)
            if error is not None:
                needs = self._lacks(names)
                problem = f"needs {' and '.join(needs)}" if needs else error.message
                yield PlannedArgument(place=place, source=words, problem=problem)
            elif stale := [self._stale[name] for name in sorted(names) if name in self._stale]:
                problem = f"needs the effect of {stale[0]}"
                yield PlannedArgument(place=place, source=words, problem=problem)
            else:
                yield PlannedArgument(place=place, source=words, value=value)

    def _source(self, template: Any) -> str:
        """Say where the value of an argument comes from."""
        if not isinstance(template, str) or "{{" not in template:
            return f"always {short(template)}"
        expression = whole_expression(template)
        if expression is None:
            return f"the text {short(template)}"
        name = expression.strip()
        if name in self._saved or self._lacking.get(name, YOUR_ANSWER) != YOUR_ANSWER:
            return f"the result `{name}`"
        return f"the input `{name}`" if name.isidentifier() else f"`{name}`"


def _item(turn: BlockTurn | None, number: int | None = None) -> Item:
    """Return the key of a call: of an item, in a turn of a block, or both."""
    return number if turn is None else turn.item(number)


def argument_values(
    source: ToolStep | UdfStep, scope: Json
) -> Iterator[tuple[str, Any, Any, EmError | None]]:
    """Yield the single values of a call's arguments: place, expression, value, or the error."""
    for place, template in _single_values(source.args):
        try:
            value = plain(compile_value(template, f"step {source.id}, {place}")(scope))
        except EmError as error:
            yield place, template, None, error
        else:
            yield place, template, value, None


def _names_of(value: Any, *, bare: bool = False) -> set[str]:
    """Return the names that the texts of a step refer to."""
    if isinstance(value, str):
        try:
            return names_in(value, "", bare=bare)
        except EmError:
            return set()
    if isinstance(value, dict):
        inner = (
            # The own result of a step is not what it waits for.
            _names_of(item, bare=bare or HOLDS.get(key) == "bare")
            - ({"result"} if key == "post" else set())
            for key, item in value.items()
        )
        return set().union(*inner)
    if isinstance(value, list | tuple):
        return set().union(*(_names_of(item, bare=bare) for item in value))
    return set()


_PLAIN_KEY = re.compile(r"[^.\[\]\"]+")


def _single_values(args: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each single value of arguments with its place, such as `items[0].sku`."""
    if not args or not isinstance(args, dict | list):
        yield from [(place, args)] if place else []
        return
    for part, inner in args.items() if isinstance(args, dict) else enumerate(args):
        if isinstance(part, str) and _PLAIN_KEY.fullmatch(part):
            inside = f"{place}.{part}" if place else part
        else:
            inside = f"{place}[{msgspec.json.encode(part).decode()}]"
        yield from _single_values(inner, inside)


MOST = 10
"""Values that are rehearsed; of a longer list none is."""
_ONLY = ("only", "only_key")
_CHOOSING = (*_ONLY, "where")


def places_of(program: Program, name: str) -> list[tuple[str, str]]:
    """Return the lists that have the values of an input: expression, and field of its rows."""
    found = [
        place
        for step in program.steps
        for text in texts(msgspec.to_builtins(step.source))
        if name in text
        for place in _places(text, name)
    ]
    return [*dict.fromkeys(found)]


def is_listed(routine: Routine, name: str) -> bool:
    """Return whether a run takes the only record with the value of an input, or hands over."""
    found = (
        _places(text, name, _ONLY)
        for step in routine.all_steps
        for text in texts(msgspec.to_builtins(step))
        if name in text
    )
    return any(field for each in found for _, field in each)


def _places(
    text: str, name: str, functions: Sequence[str] = _CHOOSING
) -> Iterator[tuple[str, str]]:
    bare = text.strip().removeprefix("{{").removesuffix("}}").strip()
    try:
        nodes = [*ast.walk(expression_of(bare))]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in nodes:
        if isinstance(node, ast.Compare) and _is(node.left, name):
            if isinstance(node.ops[0], ast.In):
                yield ast.unparse(node.comparators[0]), ""
        elif isinstance(node, ast.Call) and _is(node.func, *functions) and node.args:
            fields = [(one.arg, one.value) for one in node.keywords]
            for more in (one for one in node.args[1:] if isinstance(one, ast.Dict)):
                keys = [getattr(key, "value", None) for key in more.keys]
                fields += zip(keys, more.values, strict=True)
            for field, value in fields:
                if isinstance(field, str) and _is(value, name):
                    yield ast.unparse(node.args[0]), field


def _is(node: ast.AST, *names: str) -> bool:
    return isinstance(node, ast.Name) and node.id in names


def choices(
    program: Program, options: Json, given: Json, missing: Sequence[str]
) -> Generator[Effect, Any, dict[str, list[Any]]]:
    """Return the values of missing inputs, as far as few are listed and pass all checks.

    A routine that chooses `only(orders, id=order_id)`, or checks `order_id in user.orders`, says
    where the values of `order_id` come from. The reads that don't need the input are made, and each
    value is rehearsed. Where other inputs are missing too, the lists are shown as they are.
    """
    places = {name: found for name in missing if (found := places_of(program, name))}
    if not places:
        return {}
    bound = Bound(inputs=given, how="given")
    looking = Rehearsal(program, **options, bound=bound, lacking=missing)
    yield from looking.run(given)
    fitting = {
        name: _fitting(program, name, _listed(lists, looking.scope))
        for name, lists in places.items()
    }
    listed = {name: values for name, values in fitting.items() if 0 < len(values) <= MOST}
    if len(missing) > 1:
        return listed
    passing: dict[str, list[Any]] = {name: [] for name in listed}
    for name, values in listed.items():
        for value in values:
            inputs = {**given, name: value}
            bound = Bound(inputs=inputs, how="given")
            tried = yield from Rehearsal(program, **options, bound=bound).run(inputs)
            if tried.status == "ok":
                passing[name].append(value)
    return {name: values for name, values in passing.items() if values}


def _listed(places: Sequence[tuple[str, str]], scope: Json) -> Iterator[Any]:
    for text, field in places:
        try:
            rows = compile_expression(text, "")(scope)
        except EmError:
            continue  # it needs what was not read
        rows = rows.values() if field and isinstance(rows, Mapping) else rows
        if isinstance(rows, list | tuple) or (field and not isinstance(rows, str)):
            yield from (
                row.get(field) if field and isinstance(row, Mapping) else row for row in rows
            )


def _fitting(program: Program, name: str, values: Iterator[Any]) -> list[Any]:
    """Return the values that the input may have, each once."""
    schema = json_schema.properties_of(program.routine.input_schema).get(name, {})
    found: list[Any] = []
    for value in map(plain, values):
        fits = value is not None and not any(json_schema.problems(schema, value))
        if fits and not any(identical(value, one) for one in found):
            found.append(value)
    return found
