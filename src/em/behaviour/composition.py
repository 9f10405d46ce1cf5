"""Composition of a behaviour from a run: each value is explained by the compiler, and guarded.

The compiler finds everything that explains a value, and the facts that were read before a call.
A behaviour has nobody to ask: what nothing explains well enough stays as it was recorded, all that
may have given it must give it again, and where it was a choice, the params must be the same again.
Two things are added here, because a behaviour does the same task again: params are searched in
texts, and so are short numbers such as the 7 of `order 7`.
"""

import ast
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from em.behaviour.agent_run import Call, Run, refuse_unfinished, refuse_unknown_effects
from em.behaviour.agreement import deeper, names_in_expression, part_at
from em.behaviour.arguments import MOST_AGREEING, OUTPUT, Arguments, Wired
from em.behaviour.behaviour import FORMAT, Answer, Behaviour, Capture, Step, result_hash
from em.behaviour.codec import NotEncodable, encode
from em.behaviour.explanations import Explainer
from em.behaviour.guards import MOST as MOST_GUARDS
from em.behaviour.guards import Guards, Read
from em.behaviour.inputs import Inputs
from em.behaviour.likeness import facts_of, is_one_of_few, traits_of
from em.behaviour.returned import kinds_of, repeated, schema_of
from em.behaviour.sources import Place, Sources, literal, places, quoted, reference, text_key
from em.behaviour.task import (
    HOLE,
    Params,
    Task,
    as_expression,
    constant_texts,
    escaped,
    followed,
    param_names,
)
from em.behaviour.tool import EngineTool
from em.behaviour.weight import SMALL
from em.compiler.calls import Names, result_name, words_of
from em.compiler.evidence import information
from em.errors import EmError, ExpressionError, NotRecordable
from em.runner.expressions.guard_functions import equal
from em.runner.expressions.language import (
    compile_expression,
    compile_value,
    parse_reference,
    whole_expression,
)
from em.values.canonical import Json, identical
from em.values.leaves import Scalar, is_informative, leaves, mentioned_in, texts
from em.values.syntax_tree import expression_of

_NUMBER = re.compile(
    r"(?:(?<![A-Za-z])(?P<before>[A-Za-z]{1,40})[ #:/]{1,2})?"
    r"(?<![\w.,-])(?P<word>(?=[\w-]{0,40}\d)[\w-]{1,80}(?:\.\d{1,20})?)(?!\w|[.,]\d)"
)
"""Matches a word with a digit, and the word before it."""
_ONLY = re.compile(r"only\(([^()]*)\)")
_THE_ONE = "the_only_one"
LONGEST_TEXT = 10_000
"""Single numbers are not searched in longer texts: it is slow, and they show little."""
_IDS = frozenset("id ids code number no nr key token ref reference uuid".split())
"""Words in the names of fields that are ids."""
FAILURES = (EmError, ExpressionError, ValueError, TypeError, LookupError)


def compose(run: Run, task: Task, value: Any, hint: Any, seconds: float) -> Behaviour:
    """Make the behaviour of a run that succeeded; raise NotRecordable if it can't be stored."""
    if run.problem is not None:
        raise run.problem
    refuse_unfinished(run)
    calls = [call for call in run.calls if call.ended]
    refuse_unknown_effects(run.calls)
    if not calls:
        raise NotRecordable(
            "the agent called no tool",
            fix="a behaviour is made of calls of decorated tools",
        )
    composer = _Composer(run, task, calls)
    steps = [composer.step(number) for number in range(len(calls))]
    answer = composer.answer(value, hint)
    steps = composer.with_explained(steps)
    return Behaviour(
        task=task.template,
        tags=list(task.tags),
        params=list(task.params),
        # Another value of a param may lead to another choice.
        pinned=dict(task.params)
        if composer.has_chosen
        else pinned(task, steps, answer, composer.lost),
        steps=steps,
        answer=answer,
        seconds=seconds,
        tokens=run.tokens,
        cost_usd=run.cost_usd,
        format=FORMAT,
    )


# --- params that must be the same again -----------------------------------------------------------


def pinned(task: Task, steps: Sequence[Step], answer: Answer, lost: set[str]) -> Json:
    """Return the params whose use can't be followed: they must be equal on a replay."""
    templates = [*(step.args for step in steps), answer.value]
    names = param_names(task.params)
    found = followed(templates, list(names.values()))
    constants = list(constant_texts(templates))
    derived = _has_own_numbers(task, templates)
    found_pins = {}
    for name, value in task.params.items():
        # "ERIK" in a template was made from the param "erik" by the agent.
        bent = isinstance(value, str) and any(_is_in(value, text) for text in constants)
        # Params of equal value are part of the key, so following any of them is enough.
        alike = [names[other] for other, same in task.params.items() if identical(same, value)]
        # 30 may be ten times a param of 3.
        bent = bent or (derived and _is_number(value))
        if found.isdisjoint(alike) or bent or not lost.isdisjoint(alike):
            found_pins[name] = value
    return found_pins


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _has_own_numbers(task: Task, templates: Any) -> bool:
    """Return whether a template has numbers that come from neither the task nor a result."""
    known = {leaf for _, leaf in leaves(task.inputs) if _is_number(leaf)}
    return any(_is_number(leaf) and leaf not in known for _, leaf in leaves(templates))


def _is_in(value: str, text: str) -> bool:
    """Return whether a text contains a value, in upper or lower case."""
    if len(value) < 4:
        return len(value) == 3 and mentioned_in(value, text)
    return value.casefold() in text.casefold()


def parse_name(expression: str) -> str:
    """Return the name that a reference begins with."""
    return re.split(r"[.\[]", expression)[0]


# --- helpers --------------------------------------------------------------------------------------


def says_nothing(value: Any) -> bool:
    """Return whether a value is too common to show its source."""
    return value is None or isinstance(value, bool) or value == ""


def short_name(call: Call) -> str:
    """Return a tool's name without its class."""
    return call.tool.name.rpartition(".")[2]


def _is_id(key: str) -> bool:
    return not _IDS.isdisjoint(words_of(key))


def _in_literals(template: str, change: Callable[[str], str]) -> str:
    """Return a template with `change` applied outside of its expressions."""
    parts = HOLE.split(template)
    if any(mark in part for part in parts[::2] for mark in ("{{", "}}", "{%", "{#")):
        return template
    parts[::2] = [change(part) for part in parts[::2]]
    parts[1::2] = [f"{{{{{inside}}}}}" for inside in parts[1::2]]
    return "".join(parts)


def _is_like_an_id(value: Any) -> bool:
    """Return whether a literal looks like an id: a number, or a text with a digit."""
    if isinstance(value, str):
        return _is_own_text(value) and any(map(str.isdigit, value))
    return _is_number(value) and value not in (0, 1, -1)


def _is_own_text(value: Any) -> bool:
    return isinstance(value, str) and "{{" not in value and is_informative(value)


def _with_spaces(template: Any) -> Any:
    """Keep the spaces around a text that is one expression, so that it stays a text."""
    if not isinstance(template, str) or template == template.strip() or "{{" not in template:
        return template
    inner = template.strip()
    before, _, after = template.partition(inner)
    return "".join(
        [
            f"{{{{ {msgspec.json.encode(before).decode()} }}}}" if before else "",
            inner,
            f"{{{{ {msgspec.json.encode(after).decode()} }}}}" if after else "",
        ]
    )


def _exactly(expression: str) -> Iterator[str]:
    """Yield that what `pick` found has just this value: it ignores case, and the agent may not."""
    if "pick(" not in expression:
        return
    with suppress(SyntaxError):
        for node in ast.walk(expression_of(expression)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                for keyword in node.keywords if node.func.id == "pick" else ():
                    yield f"{ast.unparse(node)}.{keyword.arg} == {ast.unparse(keyword.value)}"


# --- the composer ---------------------------------------------------------------------------------


class _Composer:
    def __init__(self, run: Run, task: Task, calls: Sequence[Call]) -> None:
        self._task = task
        self._calls = calls
        steps = {id(call): n for n, call in enumerate(calls)}
        self._step_of = {
            n: steps[id(call)] for n, call in enumerate(run.calls) if id(call) in steps
        }
        self._params = Params(task.params, param_names(task.params))
        # A param that has an argument of its own name is not searched in other short values.
        self._named_params = {name for call in calls for name in self._params.named_in(call.args)}
        names = Names()
        self._inputs = Inputs(task, names, self._named_params)
        self._scope: Json = dict(task.inputs)
        self._names = [
            names.free(result_name(short_name(call), is_write=call.tool.writes)) for call in calls
        ]
        self._numbers_of = {name: number for number, name in enumerate(self._names)}
        self._sources = Sources()
        self._explainer = Explainer(self._inputs, self._sources)
        self._arguments = Arguments(self._inputs, self._sources, self._explainer)
        self._guards = Guards(self._sources, self._inputs.of_value)
        self._answers: dict[tuple[EngineTool, str], set[str]] = {}
        for call in calls:
            asked = call.tool, result_hash(call.args)
            self._answers.setdefault(asked, set()).add(result_hash(call.result))
        self._known: set[int] = set()
        self._first_use: dict[str, int] = {}
        self._chosen: set[str] = set()
        self._claimed: set[str] = set()
        self._guarded: set[str] = set()
        # An object that is passed on is a handle, such as a page; other objects were read.
        self._handles = {self._step_of.get(n) for call in calls for n in call.live.values()}
        self._hides = ""
        self._is_read = False
        self.lost: set[str] = set()
        """Inputs that appear in the recording and could not be followed."""
        self.has_chosen = False
        """Whether a value was chosen from several, and nothing explains how."""

    # --- results ----------------------------------------------------------------------------------

    def _learn_until(self, tick: int) -> None:
        """Add the results that existed at this tick as possible sources."""
        done = [
            (call.ended, number)
            for number, call in enumerate(self._calls)
            if call.ended < tick and number not in self._known
        ]
        for _, number in sorted(done):
            self._known.add(number)
            self._learn(number, self._calls[number])

    def _learn(self, number: int, call: Call) -> None:
        self._scope[self._names[number]] = call.result
        if call.opaque:
            self._hides = self._hides or call.tool.name
            self._is_read = self._is_read or number not in self._handles
        self._sources.add(number, self._names[number], call.result)
        if self._is_asking(call):
            self._guards.learn(Read(number, call.tool.name, call.args, call.result))
        if call.tool.writes:
            words = words_of(short_name(call))
            for place in places(number, call.result):
                # A tool of unknown effect may have been asked: only an id is surely new.
                is_new = not call.tool.reads or place.key in ("", *words) or _is_id(place.key)
                if is_new and self._sources.is_made_by(place.value, number):
                    self._explainer.fresh.setdefault(text_key(place.value), number)

    def _is_asking(self, call: Call) -> bool:
        """Return whether a call was made to know something.

        Not if its name says that it writes, or if it gave something else when it was made again.
        """
        answers = self._answers[call.tool, result_hash(call.args)]
        return not call.tool.writes or (call.tool.reads and len(answers) == 1)

    # --- steps ------------------------------------------------------------------------------------

    def step(self, number: int) -> Step:
        """Return a call as a step."""
        call = self._calls[number]
        self._learn_until(call.began)
        wired = self._wired(call.args, number)
        for name, template in wired.value.items():
            if self._hides:
                self._refuse_hidden(template, f"tool {call.tool.name}, argument {name}")
        for _, leaf in leaves(call.args):
            self._first_use.setdefault(text_key(leaf), call.began)
        expects, expect = self._expected_of(call)
        return Step(
            tool=call.tool.name,
            code=call.tool.code,
            args=wired.value,
            forms=call.forms,
            live={name: self._step_of[source] for name, source in call.live.items()},
            agree=wired.agree,
            guards=self._guards_of(call, wired),
            expects=expects,
            expect=expect,
            save_as=self._names[number],
            gave=result_hash(call.result),
            asked=[result_hash(call.args)] if self._is_asking(call) else [],
            kinds=kinds_of(call.result) if self._is_asking(call) and not call.opaque else None,
            seen=self._seen(call),
            pre=self._capture(call.pre),
            post=self._capture(call.post),
            seconds=call.seconds,
        )

    def _guards_of(self, call: Call, wired: Wired) -> list[str]:
        """Return what must hold before a write; a check of its own says all that must.

        What an earlier step requires is not repeated.
        """
        found = [
            guard
            for _, template in leaves(wired.value)
            if isinstance(template, str)
            for hole in HOLE.findall(template)
            for guard in _exactly(hole.strip())
        ]
        if call.tool.writes and call.pre is None:
            facts = self._guards.of(wired.acted)
            self.has_chosen = self.has_chosen or len(facts) >= MOST_GUARDS
            found += facts
        plain = dict.fromkeys(map(self._inputs.without_tokens, found))
        new = [guard for guard in plain if guard not in self._guarded]
        self._guarded.update(new)
        return [guard for guard in new if self._value_of(guard) is True]

    def _expected_of(self, call: Call) -> tuple[list[str], Json | None]:
        """Return what a write must return again; a check of its own says all that must be so."""
        if call.opaque or call.post is not None or not call.tool.writes:
            return [], None
        repeats = repeated(call.args, call.result)
        given = [self._task.inputs, call.args]
        schema = schema_of(call.result, repeats, given, [self._scope, call.args])
        return [*repeats.values()], schema

    def _seen(self, call: Call) -> dict[str, list[str]]:
        """Return the hashes of what a call returned, to be compared on a replay."""
        if call.opaque:
            return {}
        if self._is_asking(call):
            found = traits_of(call.result)
        else:
            found = facts_of(call.result, call.args, self._task.inputs)
        return {path: [trait] for path, trait in found.items()}

    def with_explained(self, steps: Sequence[Step]) -> list[Step]:
        """Return the steps; what arguments take from a result may differ in it."""
        uses = self._explained([step.args for step in steps])
        return [
            msgspec.structs.replace(
                step,
                seen={
                    path: [] if path in uses.get(step.save_as or "", ()) else traits
                    for path, traits in step.seen.items()
                },
                chosen=step.save_as in self._chosen,
            )
            for step in steps
        ]

    def _explained(self, templates: Any) -> dict[str, list[str]]:
        """Return the paths that expressions surely take, by the name of the result."""
        uses: dict[str, list[str]] = {}
        for hole in (hole for text in texts(templates) for hole in HOLE.findall(text)):
            found = parse_reference(_ONLY.sub(rf"\1.{_THE_ONE}", hole))
            if found is None or found[0] not in self._numbers_of:
                continue
            # What a write made is passed on, and seldom looked at.
            of_write = self._calls[self._numbers_of[found[0]]].tool.writes
            if of_write or self._is_sure(self._value_of(hole)):
                path = "".join("*" if part == _THE_ONE else f".{part}" for part in found[1])
                uses.setdefault(found[0], []).append(path)
        return uses

    def _is_sure(self, value: Any) -> bool:
        """Return whether a text stands in one place only: not in the task, nor elsewhere."""
        if not isinstance(value, str) or is_one_of_few(value) or not is_informative(value):
            return False
        places = [
            place
            for group in self._sources.groups(value)
            for place in group
            if not any(leaf == value for _, leaf in leaves(self._calls[place.call].args))
        ]
        return len(places) == 1 and not self._is_in_task(value)

    def _refuse_hidden(self, template: Any, place: str) -> None:
        """Refuse an id without a source: it may come from an object that can't be inspected."""
        for _, leaf in leaves(template):
            suspect = _is_like_an_id(leaf) or (self._is_read and _is_own_text(leaf))
            seen = text_key(leaf) in self._first_use or self._sources.groups(leaf)
            if suspect and not seen and not self._is_in_task(str(leaf)):
                raise NotRecordable(
                    f"{leaf!r} may come from the result of {self._hides}, which can't be inspected",
                    place=place,
                    fix=f"let {self._hides} return a dataclass, a model or plain values",
                )

    def _capture(self, capture: Capture | None) -> Capture | None:
        """Fill params into a capture. Results are not wired, so that changes are noticed."""
        if capture is None:
            return None
        value = self._params.fill(capture.value, cautious=True)
        return msgspec.structs.replace(capture, value=self._proved(value, capture.value))

    # --- the answer -------------------------------------------------------------------------------

    def answer(self, value: Any, hint: Any) -> Answer:
        """Return the agent's answer as an expression."""
        self._learn_until(sys.maxsize)
        try:
            encoded, form = encode(value, hint)
        except NotEncodable as problem:
            for number in range(len(self._calls) - 1, -1, -1):
                if self._calls[number].value is value:
                    return Answer(live=number)
            raise NotRecordable(
                f"the agent's return value can't be stored: {problem}",
                place="the agent's return value",
                fix="annotate the agent's return type, or return plain values",
            ) from None
        agree: Mapping[str, Sequence[str]] = {}
        template = self._whole_result(encoded)
        if template is None:
            wired = self._wired({OUTPUT: encoded}, len(self._calls))
            template, agree = wired.value[OUTPUT], wired.agree
        proved = self._proved(template, encoded)
        if self._hides:
            self._refuse_hidden(proved, "the agent's return value")
        return Answer(value=proved, form=form, agree=agree, uses=self._explained([proved]))

    def _whole_result(self, value: Any) -> str | None:
        """Return the expression of the newest call whose whole result is the answer, or None."""
        if value is None or self._params.whole(value) is not None:
            return None  # nothing, or a param
        for number in range(len(self._calls) - 1, -1, -1):
            call = self._calls[number]
            if not call.opaque and identical(call.result, value):
                return f"{{{{ {self._names[number]} }}}}"
        return None

    # --- values -----------------------------------------------------------------------------------

    def _wired(self, values: Json, number: int) -> Wired:
        """Wire the arguments of a call, or the answer as the one argument `output`."""
        self._explainer.read_together(values)
        self._inputs.say_together(values)
        # In `add(cart=1, quantity=1)` only the cart is the result of `open_cart`.
        self._claimed = {
            self._expression(group[0])
            for name, value in values.items()
            if not isinstance(value, dict | list)
            for group in self._sources.groups(value)
            if group[0].is_fixed and self._explainer.is_named(group[0], name)
        }
        parts = {
            name: self._arguments.wire(value, name, number, name) for name, value in values.items()
        }
        self._explainer.read_together({})
        self._inputs.say_together({})
        wired = Wired.joined({}, list(parts.values()))
        agree = {
            place: [self._inputs.without_tokens(text) for text in found]
            for place, found in wired.agree.items()
        }
        args = {}
        for name, value in values.items():
            template = self._finished(value, parts[name].value, number, name, agree)
            args[name] = self._proved(template, value)
        return wired._replace(value=args, agree=self._agreeing(args, values, agree))

    def _agreeing(
        self, args: Json, values: Json, agree: Mapping[str, Sequence[str]]
    ) -> dict[str, list[str]]:
        """Return what agrees with the arguments in the recording itself."""
        kept: dict[str, list[str]] = {}
        for place, found in agree.items():
            recorded, template = part_at(values, place), part_at(args, place)
            own = whole_expression(template) if isinstance(template, str) else None
            held = [
                text
                for text in dict.fromkeys(found)
                if text != (own or "").strip() and equal(self._value_of(text), recorded)
            ]
            if held:
                kept[place] = held
        return kept

    def _finished(
        self, value: Any, wired: Any, number: int, place: str, agree: dict[str, list[str]]
    ) -> Any:
        """Return a template without tokens, and note what must agree with what is not explained."""
        if isinstance(value, dict) and isinstance(wired, dict):
            return {
                key: self._finished(item, wired[key], number, deeper(place, key), agree)
                for key, item in value.items()
            }
        if isinstance(value, list) and isinstance(wired, list):
            return [
                self._finished(item, part, number, deeper(place, n), agree)
                for n, (item, part) in enumerate(zip(value, wired, strict=True))
            ]
        own = agree.setdefault(place, [])
        how = self._arguments.how[number, place]
        if isinstance(value, dict | list):
            return wired
        if how in ("said", "asked") and self._inputs.is_of_param(value):
            self.has_chosen = True
        if how == "asked":
            own += self._doubts(value, number, place)
        template = self._plain(wired)
        if isinstance(value, str) and how in ("asked", "said", "parts", "constant"):
            template = self._text(value, template, own, is_asked=how == "asked")
        if how == "asked" and template == literal(value):
            self._is_own(value, number)
        return template

    def _is_own(self, value: Scalar, number: int) -> None:
        """Note a value of a write that nothing gave: any param may have been the reason for it."""
        checked = number == len(self._calls) or self._calls[number].pre is not None
        if information(value) >= SMALL and not checked and self._calls[number].tool.writes:
            self.has_chosen = True

    def _plain(self, template: Any) -> Any:
        """Return a template with the recorded values in place of inputs that are asked for."""
        if not isinstance(template, str):
            return template
        one = self._inputs.of_token((whole_expression(template) or "").strip())
        return self._inputs.without_tokens(template) if one is None else literal(one.value)

    def _doubts(self, value: Scalar, number: int, place: str) -> list[str]:
        """Return what may have given a value that nothing explains well enough."""
        candidates = [*map(self._inputs.without_tokens, self._arguments.candidates[number, place])]
        found = [text for text in candidates if self._may_have_given(text, value)]
        if value == "" or value is None or isinstance(value, bool):
            return found
        choices = [
            group[0]
            for group in self._sources.groups(value)
            if group[0].collections and not self._was_used_before(value, group[0].call)
        ]
        if value in (0, 1, -1):
            choices = []
        if choices or len(candidates) >= MOST_AGREEING:
            # What an earlier call was given was decided there, and a check looks at the choice.
            decided = number == len(self._calls) and text_key(value) in self._first_use
            checked = number < len(self._calls) and self._calls[number].pre is not None
            self.has_chosen = self.has_chosen or not (decided or checked)
            self._chosen |= {self._names[place.call] for place in choices}
        members = self._explainer.memberships(value, quoted(value)) if choices else ()
        return [*found, *members]

    def _may_have_given(self, text: str, value: Scalar) -> bool:
        """Return whether an expression may be where a value comes from, rather than chance."""
        results = [self._numbers_of[one] for one in names_in_expression(text) & {*self._names}]
        if not results or any(self._was_used_before(value, one) for one in results):
            return False
        if value in (0, 1, -1) and text in self._claimed:
            return False
        # True and none stand everywhere.
        return not says_nothing(value) or text in self._numbers_of

    def _was_used_before(self, value: Scalar, call: int) -> bool:
        """Return whether the agent used the value before this result existed."""
        first = self._first_use.get(text_key(value))
        return first is not None and first < self._calls[call].ended

    # --- texts ------------------------------------------------------------------------------------

    def _text(self, value: str, template: str, agree: list[str], *, is_asked: bool) -> Any:
        """Fill params into a text, then short numbers of results."""
        more: list[str] = []
        done = self._completed(value, template, more)
        other = self._explainer.template(value) if is_asked else None
        if other is not None:
            found = self._inputs.without_tokens(str(other.value))
            whole = self._completed(value, found, [])
            more += [as_expression(whole)] if whole != done else []
            agree += map(self._inputs.without_tokens, other.agree)
            self.has_chosen = self.has_chosen or bool(other.agree and whole != found)
        if done != template and agree:
            # The others were put together without what was filled in here.
            self.has_chosen = True
            agree.clear()
        agree += more
        return _with_spaces(done)

    def _completed(self, value: str, template: str, agree: list[str]) -> str:
        """Return a template with params, and with short numbers of results."""
        if self._params:
            plain = template == literal(value)
            template = self._filled(value if plain else template, plain=plain)
        if len(value) > LONGEST_TEXT:
            return template
        whole = template
        return _in_literals(template, lambda part: self._numbers(part, whole, agree))

    def _filled(self, text: str, *, plain: bool) -> str:
        """Fill params into a text; a number that has its own argument must be the same again."""

        def within(part: str) -> str:
            filled, left = self._params.within_text(part, self._named_params)
            self.lost |= {parse_name(expression) for expression in left}
            return filled

        return within(text) if plain else _in_literals(text, within)

    def _numbers(self, text: str, template: str, agree: list[str]) -> str:
        """Wire words with digits to results that the word before names, as in `order 7`."""

        def fill(match: re.Match[str]) -> str:
            word = match["word"]
            places = [group[0] for group in self._sources.groups(word) if group[0].is_fixed]
            hole = self._named(places, match["before"] or "")
            start = match.group().removesuffix(word)
            for place in places:
                there = self._expression(place)
                other = match.string[: match.start()] + start + f"{{{{ {there} }}}}"
                other += match.string[match.end() :]
                if there != hole:
                    agree.append(as_expression(template.replace(match.string, other, 1)))
            return start + (f"{{{{ {hole} }}}}" if hole else word)

        return _NUMBER.sub(fill, text)

    def _named(self, places: Sequence[Place], name: str) -> str:
        """Return the newest of these places that has a name; "" if none has."""
        for place in reversed(places):
            if name and self._explainer.is_named(place, name):
                return self._expression(place)
        return ""

    def _expression(self, place: Place) -> str:
        return reference(self._names[place.call], place.parts)

    def _is_in_task(self, word: str) -> bool:
        known = [str(leaf) for _, leaf in leaves(self._task.inputs)]
        return any(word in text and (word == text or mentioned_in(word, text)) for text in known)

    # --- proof ------------------------------------------------------------------------------------

    def _value_of(self, expression: str) -> Any:
        try:
            return compile_expression(expression, "")(self._scope)
        except FAILURES:
            return None

    def _proved(self, template: Any, value: Any) -> Any:
        """Return the template if it gives the recorded value in its own run; else the value."""
        with suppress(*FAILURES):
            if identical(compile_value(template, "")(self._scope), value):
                return template
        if lost := followed(template, self._names):
            raise NotRecordable(
                f"the value from {', '.join(sorted(lost))} can't be filled in again",
                fix="pass it in an argument of its own",
            )
        self.lost |= followed(template, list(self._task.inputs))
        return escaped(value)
