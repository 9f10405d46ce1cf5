"""Blanks: what varies between tasks that always have the same effects, asked for in free words.

For every value of these effects: how it stands in the words, which calls before the request held
it, which read of the task gave it, or that it never varies. What words don't say and nothing gives
stays without a source, and is asked for.
"""

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from em.compiler.argument_facts import argument_facts
from em.compiler.calls import READING_VERBS, TracedCall, read_name, words_of
from em.compiler.evidence import ENOUGH, information, of_constant
from em.compiler.expectations import expectations
from em.compiler.homes import SURE, Example, acted_with
from em.compiler.record_facts import Shown, record_facts, value_facts
from em.compiler.sources import quoted, reference
from em.compiler.symmetry import in_order, symmetric_reads
from em.compiler.value_looks import look_facts
from em.redaction.redactor import MARKER
from em.runner.free_words import (
    HARD,
    Mention,
    known_words,
    last_earlier,
    look_of,
    mentions_in,
    plain_name,
    roles_of,
    value_of,
)
from em.runner.mentions import FUNCTION_WORDS, OPERATORS, Words, stem
from em.runner.task_plan import Effect, Form, Plan, Read, Slot, asking
from em.values.canonical import Json, identical
from em.values.leaves import scalars

MOST_STRANGE = 100
"""Values of other arguments that a slot keeps."""
MOST_EXAMPLES = 8
"""Examples of a value that a plan keeps."""
MANY = 50
"""Tasks of other kinds that are needed to learn which words tell kinds apart."""
FEWEST = 2
"""Tasks that must have a source in common."""
LONGEST_NAME = 40
"""Characters of a name that may stand for a value."""
PLAIN_WORDS = re.compile(r'"[A-Z]?[a-z]+(?:[ -][a-z]+)*"')
"""A value that is a few plain words, as JSON."""
MOST_MEANINGS = 8
"""Different values up to which words may say one without naming it."""
SHARE, HINT = 2 / 3, 1 / 3
"""Shares of the tasks that have a word which asks for them, or that hints at them."""


class _Instance(NamedTuple):
    """One call of an effect, in its task."""

    call: TracedCall
    example: Example


_Known = Mapping[str, list[_Instance]]
"""The calls of each effect."""


def whole_examples(examples: Sequence[Example]) -> list[Example]:
    """Return the tasks that have all effects of the kind; of a kind without any, all its reads."""
    tools = {call.name for one in examples for call in effects_of(one, examples)}
    return [one for one in examples if {call.name for call in effects_of(one, examples)} == tools]


def effects_of(example: Example, examples: Sequence[Example]) -> list[TracedCall]:
    """Return the calls that a task is about: those with an effect, or all if none has one."""
    writes = any(one.writes for one in examples)
    return example.writes if writes else list(example.calls)


def form_of(
    examples: Sequence[Example],
    plan: Plan,
    denied: frozenset[str] = frozenset(),
    spoken: "Spoken | None" = None,
) -> Plan | None:
    """Return a plan whose effects are always the same; None if they are not.

    plan: what else is known about the effects. denied: sources that were wrong, as
    `effect.value:source`. spoken: how tasks of other kinds speak of values.
    """
    whole = whole_examples(examples)
    if not whole:
        return None
    return _Blanks(examples, whole, plan, denied, spoken or Spoken(())).plan()


class _Manner(NamedTuple):
    """How tasks spoke of an argument: its values, and as in a slot, looks, cues and names."""

    values: frozenset[str]
    slot: Slot
    pairs: Mapping[str, list[Any]]


class Spoken:
    """How tasks of other kinds speak of the values of their calls.

    own: the tasks of the kind. Which arguments a tool has is known from all of them, also where one
    is left out to try what the others teach.
    """

    def __init__(self, examples: Sequence[Example], own: Sequence[Example] = ()) -> None:
        self.symmetric = symmetric_reads(own)
        self.arguments: dict[str, dict[str, None]] = {}
        for call in (call for one in own for call in one.calls):
            self.arguments.setdefault(call.name, {}).update(dict.fromkeys(call.args))
        instances: dict[tuple[str, str], list[_Instance]] = {}
        for example in examples:
            for call in example.calls:
                for arg in call.args:
                    instances.setdefault((call.name, arg), []).append(_Instance(call, example))
        found = {of: self._manner(of[1], several) for of, several in instances.items()}
        self._manners = {of: manner for of, manner in found.items() if manner is not None}
        self._tasks = [({call.name for call in one.calls}, {*_stems(one.said)}) for one in examples]

    def telling(self, tools: set[str], own: Sequence[Example]) -> set[str]:
        """Return the stems that most tasks which have them said to ask for these tools."""
        with_tools = [stems for called, stems in self._tasks if called & tools]
        others = [stems for called, stems in self._tasks if not called & tools]
        if len(others) < MANY:
            return set()
        asked = Counter(one for stems in with_tools for one in stems)
        asked.update(one for example in own for one in {*_stems(example.said)})
        other = Counter(one for stems in others for one in stems)
        return {
            one
            for one, count in asked.items()
            if count >= SURE and count >= (count + other[one]) * SHARE
        }

    def _manner(self, arg: str, instances: Sequence[_Instance]) -> _Manner | None:
        values = [one.call.args[arg] for one in instances]
        if any(isinstance(one, dict | list) or is_marker(one) for one in values):
            return None
        slot = Slot(examples=_distinct(values)[:MOST_EXAMPLES])
        said = [_said(one, one.call.args[arg], slot) for one in instances]
        found = [one for mentions in said for one in mentions]
        slot = msgspec.structs.replace(
            slot,
            looks=sorted({one.look for one in found}),
            cues=sorted({cue for one in found for cue in one.cues}),
        )
        unsaid = [one for one, mentions in zip(instances, said, strict=True) if not mentions]
        return _Manner(frozenset(map(quoted, values)), slot, _paired(arg, slot, unsaid))

    def added(self, tool: str, arg: str, slot: Slot) -> Slot:
        """Return a slot with how others speak of it, and the names of values that it shares."""
        if slot.secret or slot.many or slot.means:
            return slot
        own = {quoted(one) for one in slot.examples}
        pairs: dict[str, list[Any]] = {}
        for manner in self._manners.values():
            for name, values in manner.pairs.items() if own & manner.values else ():
                pairs.setdefault(name, []).extend(values)
        known = self._manners.get((tool, arg))
        if known is not None:
            slot = msgspec.structs.replace(
                slot,
                looks=sorted({*slot.looks, *known.slot.looks}),
                cues=sorted({*slot.cues, *known.slot.cues}),
            )
        if "symbol" in slot.looks:
            related = own | (known.values if known is not None else set())
            strange = {
                value.strip('"')
                for manner in self._manners.values()
                if not related & manner.values
                for value in manner.values
                if look_of(value.strip('"')) == "symbol"
            }
            slot = msgspec.structs.replace(slot, strange=sorted(strange)[:MOST_STRANGE])
        return msgspec.structs.replace(slot, aliases={**_sure(pairs), **slot.aliases})


class _Blanks:
    def __init__(
        self,
        examples: Sequence[Example],
        whole: Sequence[Example],
        plan: Plan,
        denied: frozenset[str],
        spoken: Spoken,
    ) -> None:
        self._examples, self._whole, self._plan = examples, whole, plan
        self._all_calls = [call for example in examples for call in example.calls]
        self._denied, self._spoken = denied, spoken
        self._reads: dict[str, list[Read]] = {}

    def plan(self) -> Plan | None:
        self._whole = self._alike()
        shapes = {self._shape(one, all_calls=True) for one in self._whole}
        all_calls = len(shapes) == 1
        if not all_calls:
            shapes = {self._shape(one, all_calls=False) for one in self._whole}
        if len(shapes) != 1:
            return None
        effects: dict[str, Effect] = {}
        known: dict[str, list[_Instance]] = {}
        for name, tool in _keys(next(iter(shapes))).items():
            known[name] = list(self._instances(name, tool, all_calls=all_calls))
            slots = self._slots(name, known)
            is_answer = known[name][0].call.effect == "read"
            if slots is None and is_answer and all_calls and any(o.writes for o in self._whole):
                del known[name]  # what it answers can't be found out; the effects can
                continue
            if slots is None:
                return None
            effects[name] = self._effect(tool, slots, name, known)
        if not effects:
            return None
        words = self._words(effects)
        form = Form(
            always=list(effects),
            words=words,
            hints=sorted(self._common(HINT) - set(words) - _of_values(effects)),
            harmless=self._harmless(effects),
        )
        return Plan(effects=effects, reads=self._reads, form=form)

    def _alike(self) -> Sequence[Example]:
        """Return the tasks to learn from; of those that only read, the ones most of them are like.

        How often something is done must be the same in all tasks that have an effect.
        """
        if any(one.writes for one in self._whole):
            return self._whole
        shapes = Counter(self._shape(one, all_calls=True) for one in self._whole)
        (most, count), *others = shapes.most_common()
        if not all(count > other for _, other in others):
            return self._whole
        return [one for one in self._whole if self._shape(one, all_calls=True) == most]

    def _shape(self, example: Example, *, all_calls: bool) -> tuple[str, ...]:
        calls = example.calls if all_calls else effects_of(example, self._whole)
        return tuple(call.name for call in calls)

    def _instances(self, name: str, tool: str, *, all_calls: bool) -> Iterator[_Instance]:
        """Yield the calls of one effect: of the tasks that have all, and of others that fit."""
        number = int(name.removeprefix(tool).lstrip("_") or 1) - 1
        for example in self._examples:
            calls = [call for call in example.calls if call.name == tool]
            is_whole = any(example is one for one in self._whole)
            if is_whole or (len(calls) == 1 and number == 0):
                call = calls[number]
                if tool in self._spoken.symmetric:
                    call = in_order(call, example)
                yield _Instance(call, example)

    def _effect(self, tool: str, slots: dict[str, Slot], name: str, every: _Known) -> Effect:
        instances = every[name]
        others = {other: several for other, several in every.items() if other != name}
        calls = [one.call for one in instances if any(one.example is o for o in self._whole)]
        words = [word for word in words_of(tool) if word not in FUNCTION_WORDS]
        # Many things are checked and shown; what it is tells them apart.
        words = [word for word in words if word not in READING_VERBS] or words
        if calls[0].effect == "read":
            return Effect(tool=tool, reads=True, words=words, slots=slots)
        known = self._plan.effects[tool]
        return Effect(
            tool=tool,
            words=words,
            slots=slots,
            guards=self._guards(slots, instances, others),
            expects=known.expects or expectations(calls[0], calls[1:]),
            checks=known.checks,
        )

    # --- words ------------------------------------------------------------------------------------

    def _words(self, effects: Mapping[str, Effect]) -> list[str]:
        """Return the stems that ask for the effects: of their names, and what most tasks said."""
        own = {stem(word) for one in effects.values() for word in asking(one)}
        is_said = any(
            slot.looks or slot.aliases for one in effects.values() for slot in one.slots.values()
        )
        tools = {one.tool for one in effects.values()}
        own |= self._spoken.telling(tools, self._whole) - _of_values(effects)
        return sorted(own | (self._common(SHARE) - _of_values(effects) if is_said else set()))

    def _common(self, share: float) -> set[str]:
        """Return the stems that a share of the tasks said."""
        counted = Counter(one for example in self._whole for one in set(_stems(example.said)))
        return {one for one, n in counted.items() if n >= FEWEST and n >= len(self._whole) * share}

    def _harmless(self, effects: Mapping[str, Effect]) -> list[str]:
        """Return the words and names that stood in tasks, and that no value came from."""
        said = {word for one in self._whole for _, word in Words(one.said).plain()}
        values = {
            str(value).lower()
            for one in self._whole
            for call in one.calls
            for _, value in scalars(call.args)
        }
        aliases = {
            name for one in effects.values() for slot in one.slots.values() for name in slot.aliases
        }
        names = {
            plain_name(mention.text)
            for one in self._whole
            for mention in mentions_in(one.said)
            if mention.look in ("name", "symbol")
        }
        return sorted((said & OPERATORS) - HARD | (names - values - aliases))

    # --- values -----------------------------------------------------------------------------------

    def _slots(self, name: str, known: _Known) -> dict[str, Slot] | None:
        """Return the values of an effect; None if one of them has no source in any task."""
        instances = known[name]
        names = dict.fromkeys(arg for one in instances for arg in one.call.args)
        names |= self._spoken.arguments.get(instances[0].call.name, {})
        slots: dict[str, Slot] = {}
        for arg in names:
            slot = self._slot(name, arg, known)
            slot = slot and self._without_denied(f"{name}.{arg}", slot)
            if slot is None:
                return None
            slots[arg] = slot
        # What a read gives stands behind what it is read with.
        return dict(sorted(self._pooled(slots).items(), key=lambda one: bool(one[1].default)))

    def _slot(self, name: str, arg: str, known: _Known) -> Slot | None:
        instances = [one for one in known[name] if arg in one.call.args]
        if not instances:
            return Slot(optional=True)
        values = [one.call.args[arg] for one in instances]
        optional = len(instances) < len(known[name])
        flat = [one for value in values for one in (value if isinstance(value, list) else [value])]
        if any(isinstance(one, dict | list) for one in flat):
            return None
        many = all(isinstance(value, list) for value in values)
        examples = _distinct(flat)[:MOST_EXAMPLES]
        slot = Slot(examples=examples, many=many, optional=optional)
        same = self._same(name, arg, known)
        if same:
            return msgspec.structs.replace(slot, same=same)
        given = self._given(name, arg, known)
        if given:
            return msgspec.structs.replace(slot, default=given)
        said = [_said(one, one.call.args[arg], slot) for one in instances]
        distinct = _distinct(values)
        requests = {one.example.said for one in instances}
        if all(is_marker(one) for one in flat):
            return self._secret(arg, slot, instances)
        found = [one for mentions in said for one in mentions]
        is_constant = len(distinct) == 1 and of_constant(len(requests)) >= ENOUGH and not optional
        unsaid = [one for one, mentions in zip(instances, said, strict=True) if not mentions]
        earlier = self._earlier(arg, unsaid)
        if any(all(last_earlier(o.example.earlier, way) for o in unsaid) for way in earlier):
            is_constant = False  # what always held it explains it better
        is_free = many or optional or bool(unsaid) or instances[0].call.effect != "write"
        slot = msgspec.structs.replace(
            slot,
            looks=sorted({one.look for one in found}),
            cues=sorted({cue for one in found for cue in one.cues}),
            behind=() if is_free else roles_of(said),
            earlier=earlier,
            default=[quoted(values[0])] if is_constant else self._of_reads(arg, unsaid),
            means={} if many else self._means(arg, instances),
        )
        is_mixed = bool(found) and bool(slot.earlier or slot.default) and not is_constant
        if is_mixed:
            spoken = [one for one, m in zip(instances, said, strict=True) if m]
            slot = msgspec.structs.replace(slot, when=_telling(unsaid, spoken))
            if not slot.when:
                slot = msgspec.structs.replace(slot, earlier=(), default=())
        if not many and len(distinct) > 1 and not slot.means:
            pairs = _paired(arg, slot, unsaid)
            slot = msgspec.structs.replace(slot, aliases=_sure(pairs))
        return slot if is_constant else self._spoken.added(known[name][0].call.name, arg, slot)

    def _pooled(self, slots: dict[str, Slot]) -> dict[str, Slot]:
        """Return the slots with the names of values that two of them share."""
        found = dict(slots)
        for name, slot in slots.items():
            own = {quoted(one) for one in slot.examples}
            for other in slots.values():
                if other is not slot and own & {quoted(one) for one in other.examples}:
                    aliases = {**other.aliases, **slot.aliases}
                    found[name] = msgspec.structs.replace(slot, aliases=aliases)
        return found

    def _without_denied(self, blank: str, slot: Slot) -> Slot | None:
        """Return a slot without the sources that were wrong; None if it has no other."""
        less: Json = {
            "bare": {"cued": True},
            "list": {"looks": ()},
            "cue": {"looks": ()},
            "alias": {"aliases": {}},
            "means": {"means": {}},
            "default": {"default": ()},
            "constant": {"default": ()},
            "earlier": {"earlier": ()},
            "unsaid": {"optional": False},
        }
        for source, change in less.items():
            if f"{blank}:{source}" in self._denied:
                slot = msgspec.structs.replace(slot, **change)
        has_source = slot.looks or slot.aliases or slot.means or slot.default or slot.earlier
        return slot if has_source or slot.same or slot.optional else None

    def _secret(self, arg: str, slot: Slot, instances: Sequence[_Instance]) -> Slot:
        """Return the slot of a value that recordings hide: named in words, or in earlier calls."""
        cues = [f"{stem(word)} …" for word in words_of(arg)]
        return msgspec.structs.replace(
            slot,
            examples=(),
            secret=True,
            looks=["code", "identifier", "number", "quote"],
            cues=cues,
            earlier=self._earlier(arg, instances),
        )

    def _same(self, name: str, arg: str, known: _Known) -> str:
        """Return the value of an effect before this one that it equalled in every task."""
        own = {id(one.example): one.call.args.get(arg) for one in known[name]}
        for other, instances in known.items():
            for parameter in instances[0].call.args if other != name else ():
                pairs = [
                    (one.call.args.get(parameter), own[id(one.example)])
                    for one in instances
                    if id(one.example) in own
                ]
                if (
                    len(pairs) >= FEWEST
                    and all(a is not None and identical(a, b) for a, b in pairs)
                    and len(_distinct(a for a, _ in pairs)) > 1
                ):
                    return f"{other}.{parameter}"
        return ""

    def _earlier(self, arg: str, unsaid: Sequence[_Instance]) -> list[str]:
        """Return the ways to earlier calls that held the value each time they were there."""
        ways: dict[str, None] = {}
        for one in unsaid:
            for call in one.example.earlier:
                for where, value in scalars({part: call.get(part) for part in ("args", "result")}):
                    is_fixed = all(isinstance(step, str) for step in where) and value is not None
                    if is_fixed and identical(value, one.call.args[arg]):
                        ways[".".join([str(call.get("tool")), *map(str, where)])] = None
        kept = []
        for way in ways:
            held = [(last_earlier(one.example.earlier, way), one.call.args[arg]) for one in unsaid]
            there = [(values[0], wanted) for values, wanted in held if values]
            if len(there) >= FEWEST and all(identical(a, b) for a, b in there):
                kept.append((len(there), way))
        most = max((count for count, _ in kept), default=0)
        return [way for count, way in sorted(kept, reverse=True) if count * 2 >= most]

    def _given(self, name: str, arg: str, known: _Known) -> list[str]:
        """Return the results of effects before this one that held the value in every task."""
        others = {other: several for other, several in known.items() if other != name}
        whole = {id(one) for one in self._whole}
        own = [one for one in known[name] if id(one.example) in whole and arg in one.call.args]
        if len(own) < len(whole) or not others:
            return []
        before = tuple(f"({other}." for other in others)
        found = self._of_reads(arg, own, others, max(FEWEST, len(own)))
        return [text for text in found if any(one in text for one in before)]

    def _of_reads(
        self,
        arg: str,
        unsaid: Sequence[_Instance],
        others: _Known | None = None,
        fewest: int = FEWEST,
    ) -> list[str]:
        """Return the expressions of reads with values of the effects that gave the value.

        others: effects before this one; `check.port` is the value of one of them. fewest: tasks
        in which it must have been so.
        """
        tried: dict[str, list[bool]] = {}
        made: dict[str, Read] = {}
        for one in unsaid:
            for text, call in self._linked(one, others or {}, but=arg):
                for where, value in scalars(call.result):
                    if all(isinstance(step, str) for step in where):
                        way = reference(text, tuple(map(str, where)))
                        tried.setdefault(way, []).append(identical(value, one.call.args[arg]))
                        made[way] = _read_of(call)
        kept = [way for way, held in tried.items() if len(held) >= fewest and all(held)]
        for way in kept:
            name = way.partition("(")[0]
            self._reads[name] = [made[way]]
        return kept

    def _linked(
        self, one: _Instance, others: _Known, but: str = ""
    ) -> Iterator[tuple[str, TracedCall]]:
        """Yield the reads before an effect that were made with values of effects, as expressions.

        but: an argument of the effect that a read is to give, so that it can't be made with it.
        """
        for call in one.example.calls[: one.call.index]:
            if call.effect != "read":
                continue
            links = [
                _argument_of(one.call, value, but) or _argument_before(one, value, others)
                for value in call.args.values()
            ]
            if all(links):
                yield f"{read_name(call.name, self._all_calls)}({', '.join(links)})", call

    def _looked_at(
        self, one: _Instance, others: _Known
    ) -> dict[str, tuple[Sequence[str], TracedCall]]:
        """Return the reads before an effect that were made for it, by their expressions.

        They were made with values of effects, or with what such a read returned.
        """
        found: dict[str, tuple[Sequence[str], TracedCall]] = {}
        for call in one.example.calls[: one.call.index]:
            if call.effect != "read":
                continue
            given = (
                _argument_of(one.call, value, "") or _argument_before(one, value, others)
                for value in call.args.values()
            )
            ways = [
                [link] if link else _results_with(found, value)
                for link, value in zip(given, call.args.values(), strict=True)
            ]
            for links in itertools.islice(itertools.product(*ways), MOST_WAYS):
                text = f"{read_name(call.name, self._all_calls)}({', '.join(links)})"
                found[text] = (links, call)
        return found

    def _guards(
        self, slots: Mapping[str, Slot], instances: Sequence[_Instance], others: _Known
    ) -> list[str]:
        """Return what was so of all records that were read for an effect, and of values of them."""
        seen: dict[str, list[Shown]] = {}
        acted: dict[str, list[TracedCall]] = {}
        made: dict[str, Read] = {}
        for one in instances:
            for text, (links, call) in self._looked_at(one, others).items():
                given = dict(zip(links, call.args.values(), strict=True))
                seen.setdefault(text, []).append(Shown(given, call.result))
                acted.setdefault(text, []).append(one.call)
                made[text] = _read_of(call)
        guards: list[str] = []
        for text, shown in seen.items():
            name, *inner = _CALLED.findall(text)
            used = str([default for slot in slots.values() for default in slot.default])
            is_used = text in used
            is_free = name not in slots and name not in others and self._reads.keys() >= {*inner}
            if is_free and (is_used or len(shown) == len(instances)) and _is_no_chance(shown):
                self._reads.setdefault(name, [made[text]])
                with_these = {key for one in shown for key in one.given}
                own = acted_with(acted[text], with_these)
                guards += record_facts(text, shown, own, used=used)
        recorded: dict[str, list[Any]] = {}
        for name, slot in slots.items():
            values = [one.call.args[name] for one in instances if name in one.call.args]
            if len(values) == len(instances) and not slot.secret:
                if any("(" in text for text in slot.default):
                    guards += value_facts(name, values)
                if name.isidentifier():
                    recorded[name] = values
                    guards += look_facts(name, values)
        guards += argument_facts(recorded)
        return list(dict.fromkeys(guards))

    def _means(self, arg: str, instances: Sequence[_Instance]) -> dict[str, list[str]]:
        """Return the words that came with one value in all its tasks, and never with another."""
        by_value: dict[str, list[set[str]]] = {}
        for one in instances:
            stems = set(_stems(one.example.said))
            by_value.setdefault(quoted(one.call.args[arg]), []).append(stems)
        if not 1 < len(by_value) <= MOST_MEANINGS:
            return {}
        # Of an enumeration, a value may be said as it is.
        is_few = len(by_value) <= len(instances) / 2
        own = {
            value: {
                stem(one.lower())
                for one in re.findall(r"[a-z]+", value.lower())
                if is_few and len(one) > 2 and PLAIN_WORDS.fullmatch(value)
            }
            for value in by_value
        }
        if any(own.values()):
            return {
                value: sorted(
                    words - {one for other in own if other != value for one in own[other]}
                )
                for value, words in own.items()
            }
        found: dict[str, list[str]] = {}
        for value, several in by_value.items():
            others = {
                one
                for other, sets in by_value.items()
                if other != value
                for one in set().union(*sets)
            }
            common = set.intersection(*several) - others if len(several) >= SURE else set()
            if common:
                found[value] = sorted(common)
        return found


def _of_values(effects: Mapping[str, Effect]) -> set[str]:
    """Return the stems of the values' names, of words that say one, and of those behind them."""
    slots = [slot for one in effects.values() for slot in one.slots.items()]
    names = {stem(word) for name, _ in slots for word in words_of(name)}
    names |= {one for _, slot in slots for words in slot.means.values() for one in words}
    return names | {cue.strip("… ") for _, slot in slots for cue in slot.cues if cue[0] == "…"}


def _keys(shape: Sequence[str]) -> dict[str, str]:
    """Return names for the effects of a shape: a tool that is called again gets a number."""
    found: dict[str, str] = {}
    counted: Counter[str] = Counter()
    for tool in shape:
        counted[tool] += 1
        found[tool if counted[tool] == 1 else f"{tool}_{counted[tool]}"] = tool
    return found


def _said(one: _Instance, value: Any, slot: Slot) -> list[Mention]:
    """Return where a value stands in the words; of a list, every item must."""
    mentions = mentions_in(one.example.said)
    if not one.example.writes:
        mentions += known_words(one.example.said, value if isinstance(value, list) else [value])
    found: list[Mention] = []
    for item in value if isinstance(value, list) else [value]:
        own = [m for m in mentions if _is_said(m, item, slot)]
        if not own:
            return []
        found += own
    return found


def _paired(arg: str, slot: Slot, unsaid: Sequence[_Instance]) -> dict[str, list[Any]]:
    """Return the names in the words that may have stood for a value, each time."""
    paired: dict[str, list[Any]] = {}
    for one in unsaid:
        value = one.call.args[arg]
        names = [
            mention
            for mention in mentions_in(one.example.said)
            if mention.look in ("name", "quote") and len(mention.text) <= LONGEST_NAME
        ]
        beside = [mention for mention in names if mention.cues & set(slot.cues)]
        texts = {plain_name(mention.text) for mention in (beside or names)}
        if len(texts) == 1 and isinstance(value, str):
            paired.setdefault(texts.pop(), []).append(value)
    return paired


def _sure(paired: Mapping[str, list[Any]]) -> dict[str, Any]:
    """Return the names that stood for one value only: twice, or with its letters."""
    names = Counter(value for values in paired.values() for value in set(values))
    return {
        name: values[0]
        for name, values in paired.items()
        if len(set(values)) == 1
        and (_abbreviates(values[0], name) or (len(values) >= FEWEST and names[values[0]] == 1))
    }


def _stems(text: str) -> Iterator[str]:
    """Yield the stems of the words that carry something."""
    for _, word in Words(text).plain():
        for part in {word, *word.split("-")}:
            if part not in FUNCTION_WORDS | OPERATORS | HARD and len(part) > 2:
                yield stem(part)


def _telling(some: Sequence[_Instance], others: Sequence[_Instance]) -> list[str]:
    """Return the stems that half of some tasks said, and more of them than of others."""

    def shares(tasks: Sequence[_Instance]) -> Counter[str]:
        return Counter(s for one in tasks for s in set(_stems(one.example.said)))

    own, other = shares(some), shares(others)
    return sorted(
        word
        for word, count in own.items()
        if count >= FEWEST
        and count * 2 >= len(some)
        and count * len(others) > other[word] * len(some)
    )


def _abbreviates(value: str, name: str) -> bool:
    """Return whether a value has letters of a name only, in their order, from the first one on."""
    rest = iter(name.lower())
    return value[:1].lower() == name[:1].lower() and all(char in rest for char in value.lower())


def _is_said(mention: Mention, value: Any, slot: Slot) -> bool:
    own = value_of(mention, slot)
    if isinstance(value, bool) or own is None:
        return False
    if isinstance(value, str) and isinstance(own, str):
        return own == value
    return bool(own == value)


def _read_of(call: TracedCall) -> Read:
    """Return the read that a call is, made with values that are given to it."""
    args = {name: f"{{{{ {name} }}}}" for name in call.args}
    return Read(tool=call.name, args=args, given=tuple(call.args))


def _argument_of(call: TracedCall, value: Any, but: str) -> str:
    """Return the argument of a call that has this value; "" if none has."""
    for name, own in call.args.items():
        if name != but and not isinstance(own, dict | list) and identical(own, value):
            return name
    return ""


_CALLED = re.compile(r"(\w+)\(")
MOST_WAYS = 10
"""Expressions that are tried for a read that was made with what others returned."""


def _results_with(reads: Mapping[str, tuple[Sequence[str], TracedCall]], value: Any) -> list[str]:
    """Return where reads returned this value, as `order(id).customer`."""
    if isinstance(value, dict | list | bool) or value in (None, ""):
        return []
    return [
        reference(text, tuple(map(str, where)))
        for text, (_, call) in reads.items()
        for where, held in scalars(call.result)
        if where and all(isinstance(step, str) for step in where) and identical(held, value)
    ]


def _is_no_chance(shown: Sequence[Shown]) -> bool:
    """Return whether reads were made with what others returned, and not by chance with the same."""
    for link in shown[0].given:
        values = [one.given[link] for one in shown]
        is_same = len(_distinct(values)) == 1
        if "(" in link and is_same and information(values[0]) < ENOUGH:
            return False
    return True


def _argument_before(one: _Instance, value: Any, others: _Known) -> str:
    """Return the argument of an effect before another that has this value, as `effect.name`."""
    for effect, instances in others.items():
        for other in instances:
            name = _argument_of(other.call, value, "") if other.example is one.example else ""
            if name:
                return f"{effect}.{name}"
    return ""


def is_marker(value: Any) -> bool:
    """Return whether a value was redacted."""
    return isinstance(value, str) and MARKER.fullmatch(value) is not None


def _distinct(values: Any) -> list[Any]:
    return list({quoted(value): value for value in values}.values())
