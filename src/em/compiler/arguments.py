"""Arguments: each value of a call, or of the output, as the routine writes it.

A value of a call with an effect is taken from its best explanation, and everything else that could
explain it must agree when the routine runs. Where nothing explains it well enough it becomes an
input that is asked for, with the recorded value as its example.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from em.compiler.evidence import ENOUGH, INCREDIBLE, SMALL, information, is_incredible
from em.compiler.explanations import Explained, Explainer, Explanation, How, Leaf, converted
from em.compiler.guards import Acted
from em.compiler.inputs import Input, Inputs, Use
from em.compiler.sources import Sources, quoted, reference, text_key
from em.redaction.redactor import MARKER
from em.runner.agreement import deeper
from em.values.canonical import Json
from em.values.leaves import leaves

OUTPUT = "output"
"""The place of a routine's return value."""

Mode = Literal["effect", "read", "output"]
MOST_AGREEING = 8
"""Expressions that must agree with one value; with more candidates the run asks."""


class Wired(NamedTuple):
    """A value as the routine writes it.

    agree: by place, the expressions that must give the same.
    calls: the calls whose results it needs; checks: those that only `agree` needs.
    acted: the ids and amounts in it, for guards.
    """

    value: Any
    agree: dict[str, list[str]]
    calls: frozenset[int]
    acted: tuple[Acted, ...] = ()
    follows_request: bool = True

    @classmethod
    def joined(cls, value: Any, parts: Sequence["Wired"]) -> "Wired":
        """Return a structure of wired parts."""
        return cls(
            value,
            {place: texts for part in parts for place, texts in part.agree.items()},
            frozenset().union(*(part.calls for part in parts)),
            tuple(one for part in parts for one in part.acted),
            all(part.follows_request for part in parts),
        )


def literal(value: Any) -> Any:
    """Return a constant, quoted if it would read as an expression."""
    if isinstance(value, str) and ("{{" in value or "{%" in value or "{#" in value):
        return "{{ " + msgspec.json.encode(value).decode() + " }}"
    return value


class Arguments:
    """Wires the values of one routine. `is_reading`: it has no effect, so nothing is asked."""

    def __init__(
        self,
        inputs: Inputs,
        sources: Sources,
        explainer: Explainer,
        asked: dict[tuple[int, str], Input],
        *,
        is_reading: bool,
    ) -> None:
        self._inputs, self._sources, self._explainer = inputs, sources, explainer
        self._is_reading = is_reading
        # By call and place: the inputs that were made so far, in this pass or the one before.
        self._asked = asked
        self._roles: Json = {}
        self.explained: dict[int, dict[str, Explained]] = {}
        self.secrets: dict[str, str] = {}
        """The name of each secret, by its marker in the trace."""

    def take_roles(self, args: Json) -> None:
        """Take the arguments of a call. A value that two of them have is explained for neither.

        An item that is exchanged for an equal one must not make both the same for ever.
        """
        names: dict[str, set[str]] = {}
        for name, value in args.items():
            for _, leaf in leaves(value):
                if information(leaf) >= ENOUGH:
                    names.setdefault(text_key(leaf), set()).add(name)
        self._roles = {key: found for key, found in names.items() if len(found) > 1}

    def wire(self, value: Any, use: Use, call: int, place: str, mode: Mode) -> Wired:
        """Wire all parts of a value."""
        whole = self._whole(value, mode)
        if whole is not None:
            self._explain(call, place, value, whole)
            agree = {place: list(whole.agree)} if whole.agree else {}
            return Wired(whole.value, agree, whole.calls, follows_request=True)
        if isinstance(value, dict):
            return self._mapping(value, use, call, place, mode)
        if isinstance(value, list):
            return self._list(value, use, call, place, mode)
        return self._single(value, use, call, place, mode)

    def _whole(self, value: Any, mode: Mode) -> Leaf | None:
        """Explain a structure that equals a whole result, or a whole input.

        For an effect, every other place that holds it must agree; a short one may be a constant.
        """
        if not isinstance(value, dict | list) or not value:
            return None
        found = {
            reference(self._sources.names[call], parts): call
            for call, parts in reversed(self._sources.wholes(value))
        }
        given = self._inputs.whole(value)
        own = given or next(iter(found), None)
        if own is None:
            return None
        agree: list[str] = []
        if mode == "effect":
            agree = [one for one in found if one != own]
            new = all(text_key(leaf) in self._explainer.fresh for _, leaf in leaves(value))
            if given is None and information(value) < ENOUGH and not new:
                agree.append(quoted(value))
        calls = frozenset(found[one] for one in (own, *agree) if one in found)
        how: How = "result" if given is None else "input"
        return Leaf(f"{{{{ {own} }}}}", how, INCREDIBLE, tuple(agree), calls)

    def _mapping(self, value: Json, use: Use, call: int, place: str, mode: Mode) -> Wired:
        self._explainer.read_together(value)
        parts = {
            key: self.wire(item, use._replace(name=str(key)), call, deeper(place, str(key)), mode)
            for key, item in value.items()
        }
        self._explainer.read_together({})
        return Wired.joined({key: part.value for key, part in parts.items()}, list(parts.values()))

    def _list(self, value: list[Any], use: Use, call: int, place: str, mode: Mode) -> Wired:
        by_items = mode == "output" or (self._is_reading and mode == "read")
        if by_items or self._explainer.same_task:
            return self._items(value, use, call, place, mode)
        plain = all(not isinstance(item, dict | list) for item in value)
        if value and plain and all(self._inputs.said(item) >= ENOUGH for item in value):
            return self._as_input(value, use, call, place, is_said=True)
        if mode == "effect" and not (value and self._is_explained(value, use)):
            # How many items there are is not explained by one task either.
            return self._as_input(value, use, call, place, is_said=False)
        if mode == "read" and plain and any(self._is_choice(item) for item in value):
            return self._as_input(value, use, call, place, is_said=False)
        return self._items(value, use, call, place, mode)

    def _items(self, value: list[Any], use: Use, call: int, place: str, mode: Mode) -> Wired:
        parts = [
            self.wire(item, use, call, deeper(place, number), mode)
            for number, item in enumerate(value)
        ]
        return Wired.joined([part.value for part in parts], parts)

    def _is_explained(self, value: Any, use: Use) -> bool:
        """Return whether every part is explained without a choice that nothing names."""
        if isinstance(value, dict):
            return all(
                self._is_explained(item, use._replace(name=key)) for key, item in value.items()
            )
        if isinstance(value, list):
            return all(self._is_explained(item, use) for item in value)
        if self._inputs.said(value) >= ENOUGH:
            return True
        if text_key(value) in self._roles:
            return False
        found = self._explainer.explanations(value, use.name)
        return bool(found) and found[0].bits >= ENOUGH

    def _as_input(self, value: Any, use: Use, call: int, place: str, *, is_said: bool) -> Wired:
        """Make a whole list one input, whose items must be among those that it was chosen from."""
        given = self._ask(value, use, call, place, is_said=is_said)
        acted = tuple(_columns(value, use.name, given.token))
        checks = list(self._explainer.memberships(value, given.token)) if _is_flat(value) else []
        agree = [text for text, _ in checks][:MOST_AGREEING]
        calls = frozenset(call for _, needed in checks for call in needed)
        how: How = "said" if is_said else "asked"
        leaf = Leaf(f"{{{{ {given.token} }}}}", how, 0.0, tuple(agree), calls)
        self._explain(call, place, value, leaf)
        return Wired(leaf.value, {place: agree} if agree else {}, calls, acted)

    def _single(self, value: Any, use: Use, call: int, place: str, mode: Mode) -> Wired:
        if isinstance(value, str) and MARKER.search(value):
            leaf = self._secret(value, use, mode)
        elif mode == "effect":
            leaf = self._of_effect(value, use, call, place)
        elif mode == "read":
            leaf = self._of_read(value, use, call, place)
        else:
            leaf = self._of_output(value, use)
        self._explain(call, place, value, leaf)
        agree = {place: list(leaf.agree)} if leaf.agree else {}
        acted: tuple[Acted, ...] = ()
        if mode == "effect" and leaf.how not in ("parts", "secret"):
            text = str(leaf.value)
            bare = text.removeprefix("{{ ").removesuffix(" }}") if "{{" in text else quoted(value)
            acted = (Acted(use.name, value, bare),)
        return Wired(leaf.value, agree, leaf.calls, acted, leaf.follows_request)

    # --- effects ----------------------------------------------------------------------------------

    def _of_effect(self, value: Any, use: Use, call: int, place: str) -> Leaf:
        found = self._explainer.explanations(value, use.name)
        said = self._inputs.said(value)
        best = found[0] if found else None
        stated = next((one for one in found if one.how == "input" and one.bits >= ENOUGH), None)
        if stated is not None:
            return self._given(value, stated.expression, "input", found)
        if said >= ENOUGH:
            given = self._ask(value, use, call, place, is_said=True)
            expression = converted(given.token, value, given.value)
            return self._given(value, expression, "said", found)
        is_clear = len(found) <= MOST_AGREEING and text_key(value) not in self._roles
        if best is not None and best.bits >= ENOUGH and is_clear:
            return self._derived(value, best, found)
        if isinstance(value, str):
            text = self._explainer.template(value, use)
            if text is not None and text.bits >= ENOUGH:
                return text
        given = self._ask(value, use, call, place, is_said=False)
        given.candidates = [one.expression for one in found][:MOST_AGREEING]
        return self._given(value, given.token, "asked", found)

    def _given(self, value: Any, expression: str, how: How, found: Sequence[Explanation]) -> Leaf:
        """Return a value that is an input; what else held it must hold it again."""
        agree: dict[str, frozenset[int]] = {}
        for one in found:
            if one.expression == expression:
                continue
            by_keys = one.how in ("key", "result") and is_incredible(value)
            small = how != "asked" and one.how in ("key", "result", "input", "constant", "computed")
            if by_keys or (small and not is_incredible(value)):
                agree[one.expression] = frozenset(() if one.call is None else (one.call,))
        if information(value) >= ENOUGH:
            agree |= dict(self._explainer.memberships(value, expression))
        texts = list(agree)[:MOST_AGREEING]
        calls = frozenset(call for text in texts for call in agree[text])
        return Leaf(f"{{{{ {expression} }}}}", how, ENOUGH, tuple(texts), calls)

    def _derived(self, value: Any, best: Explanation, found: Sequence[Explanation]) -> Leaf:
        """Return a value of an earlier result; every other explanation must agree."""
        others = [one for one in found if one.expression != best.expression]
        if best.how == "match":
            # The request names the item, so being the cheapest as well is an accident.
            others = [one for one in others if one.how in ("key", "result", "match")]
        calls = frozenset(one.call for one in (best, *others) if one.call is not None)
        follows = (
            best.how in ("result", "match")
            or text_key(value) in self._explainer.read_by
            or text_key(value) in self._explainer.fresh
        )
        return Leaf(
            f"{{{{ {best.expression} }}}}",
            best.how,
            best.bits,
            tuple(one.expression for one in others),
            calls,
            follows_request=follows,
        )

    def _ask(self, value: Any, use: Use, call: int, place: str, *, is_said: bool) -> Input:
        key = (call, place)
        if key not in self._asked:
            self._asked[key] = self._inputs.take(value, use, is_said=is_said)
        return self._asked[key]

    # --- reads and output -------------------------------------------------------------------------

    def _of_read(self, value: Any, use: Use, call: int, place: str) -> Leaf:
        """Explain an argument of a read. A constant is fine; an unexplained choice is asked."""
        found = self._explainer.explanations(value, use.name)
        stated = next((one for one in found if one.how == "input" and one.bits >= ENOUGH), None)
        if stated is not None:
            return Leaf(f"{{{{ {stated.expression} }}}}", "input", stated.bits)
        if self._inputs.said(value) >= ENOUGH:
            given = self._ask(value, use, call, place, is_said=True)
            return Leaf(f"{{{{ {converted(given.token, value, given.value)} }}}}", "said", ENOUGH)
        was_asked = (call, place) in self._asked
        known = self._inputs.of_value(value) if information(value) >= ENOUGH else None
        if known is not None and not was_asked:
            return Leaf(f"{{{{ {known} }}}}", "input", ENOUGH)
        # Of several the earliest: the sooner a read can be made, the sooner a refusal comes.
        sure = [one for one in found if one.bits >= ENOUGH]
        best = min(sure, key=lambda one: -1 if one.call is None else one.call, default=None)
        if was_asked or (best is None and self._is_choice(value) and not self._is_reading):
            given = self._ask(value, use, call, place, is_said=False)
            given.candidates = [one.expression for one in found][:MOST_AGREEING]
            return Leaf(f"{{{{ {given.token} }}}}", "asked", 0.0)
        if best is None:
            return self._any(value, use, found)
        calls = frozenset(() if best.call is None else (best.call,))
        return Leaf(f"{{{{ {best.expression} }}}}", best.how, best.bits, (), calls)

    def _is_choice(self, value: Any) -> bool:
        """Return whether an id was chosen from a list, or from several values of one name."""
        if isinstance(value, dict | list) or information(value) < ENOUGH:
            return False
        groups = self._sources.groups(value)
        return any(group[0].collections or self._sources.rivals(group[0]) > 1 for group in groups)

    def _of_output(self, value: Any, use: Use) -> Leaf:
        """Explain a value of the output: an old answer repeated would be wrong."""
        if information(value) >= SMALL or (isinstance(value, str) and value):
            for stated in self._inputs.stated(value, use.name):
                if stated.bits >= ENOUGH:
                    expression = converted(stated.expression, value, stated.place.value)
                    return Leaf(f"{{{{ {expression} }}}}", "input", stated.bits)
        return self._any(value, use, self._explainer.from_results(value, use.name))

    def _any(self, value: Any, use: Use, found: Sequence[Explanation]) -> Leaf:
        """Return the best explanation of a value that nothing depends on; else the constant."""
        rest = [one for one in found if one.how not in ("constant", "computed")]
        best = self._explainer.likeliest(value, use.name, rest)
        if best is not None:
            calls = frozenset(() if best.call is None else (best.call,))
            note = "" if best.bits >= ENOUGH else self._doubt(value, best, rest)
            return Leaf(f"{{{{ {best.expression} }}}}", best.how, best.bits, (), calls, note)
        if isinstance(value, str):
            if self._inputs.said(value) >= ENOUGH:
                given = self._inputs.take(value, use, is_said=True)
                return Leaf(f"{{{{ {given.token} }}}}", "said", ENOUGH)
            text = self._explainer.template(value, use)
            if text is not None:
                return text._replace(agree=())
        calls = frozenset(one.call for one in rest if one.call is not None)
        note = self._doubt(value, rest[0], rest) if rest else ""
        return Leaf(literal(value), "constant", 0.0, (), calls, note)

    def _doubt(self, value: Any, best: Explanation, rest: Sequence[Explanation]) -> str:
        others = [one.expression for one in rest if one.expression != best.expression]
        return f"{value!r} may also be {', '.join(others[:3])}" if others else ""

    # --- secrets ----------------------------------------------------------------------------------

    def _secret(self, value: str, use: Use, mode: Mode) -> Leaf:
        """Wire a text with markers of secrets: fetched again by a read, or given by the user.

        Secrets are filled into calls only, never into prompts or outputs.
        """
        found = [
            one for one in self._explainer.from_results(value, use.name) if one.how != "constant"
        ]
        best = self._explainer.likeliest(value, use.name, found)
        if best is not None:
            calls = frozenset(() if best.call is None else (best.call,))
            return Leaf(f"{{{{ {best.expression} }}}}", best.how, best.bits, (), calls)
        if mode == "output":
            return Leaf(literal(value), "constant", 0.0)
        return Leaf("".join(self._filled_in(value)), "secret", INCREDIBLE)

    def _filled_in(self, value: str) -> Iterator[str]:
        done = 0
        for found in MARKER.finditer(value):
            text = found.group()
            if text not in self.secrets:
                self.secrets[text] = self._inputs.secret_name(text)
            if before := value[done : found.start()]:
                yield literal(before)
            yield f"{{{{ {self.secrets[text]} }}}}"
            done = found.end()
        if rest := value[done:]:
            yield literal(rest)

    def _explain(self, call: int, place: str, recorded: Any, leaf: Leaf) -> None:
        self.explained.setdefault(call, {})[place] = Explained(
            call, place, recorded, leaf.value, leaf.how, leaf.note, leaf.agree, leaf.bits
        )

    def all_explained(self) -> Iterator[Explained]:
        """Yield how every value was explained, in the order of the calls."""
        for found in self.explained.values():
            yield from found.values()


def _columns(value: list[Any], name: str, token: str) -> Iterator[Acted]:
    """Yield a list of ids as it is, and a list of records as one list for each of their fields."""
    if _is_flat(value):
        yield Acted(name, value, token)
        return
    fields = dict.fromkeys(key for item in value if isinstance(item, dict) for key in item)
    for field in fields:
        column = [item[field] for item in value if isinstance(item, dict) and field in item]
        if _is_flat(column) and str(field).isidentifier():
            yield Acted(str(field), column, f"every({token}, {quoted(f'*.{field}')})", True)


def _is_flat(value: Any) -> bool:
    return isinstance(value, list) and all(not isinstance(item, dict | list) for item in value)
