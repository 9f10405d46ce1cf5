"""Arguments: each value of a call, or of the answer, as a step writes it.

A value is taken from its best explanation, and everything else that could explain it must agree
when it is replayed. Where nothing explains it well enough, a token of `inputs` stands for it.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from em.behaviour.agreement import deeper
from em.behaviour.explanations import Explainer, Explanation, How, Leaf, converted
from em.behaviour.guards import Acted
from em.behaviour.inputs import Inputs
from em.behaviour.sources import Sources, quoted, reference, text_key
from em.behaviour.weight import ENOUGH, is_incredible
from em.compiler.evidence import information
from em.values.canonical import Json
from em.values.leaves import leaves

OUTPUT = "output"
"""The place of an answer."""
MOST_AGREEING = 8
"""Expressions that must agree with one value; with more candidates it is not explained."""


class Wired(NamedTuple):
    """A value as a step writes it.

    agree: by place, the expressions that must give the same. acted: the values in it, for guards.
    """

    value: Any
    agree: dict[str, list[str]]
    acted: tuple[Acted, ...] = ()

    @classmethod
    def joined(cls, value: Any, parts: Sequence["Wired"]) -> "Wired":
        """Return a structure of wired parts."""
        return cls(
            value,
            {place: texts for part in parts for place, texts in part.agree.items()},
            tuple(one for part in parts for one in part.acted),
        )


class Arguments:
    """Wires the values of one behaviour.

    how: by call and place, how each value is explained. candidates: by call and place, what may
    have given a value that nothing explains well enough.
    """

    def __init__(self, inputs: Inputs, sources: Sources, explainer: Explainer) -> None:
        self._inputs, self._sources, self._explainer = inputs, sources, explainer
        self.how: dict[tuple[int, str], How] = {}
        self.candidates: dict[tuple[int, str], list[str]] = {}

    def wire(self, value: Any, name: str, call: int, place: str) -> Wired:
        """Wire all parts of a value. name: of the argument, or of the field in it."""
        whole = self._whole(value)
        if whole is not None:
            self.how[call, place] = whole.how
            return Wired(whole.value, {place: list(whole.agree)} if whole.agree else {})
        if isinstance(value, dict):
            return self._mapping(value, call, place)
        if isinstance(value, list):
            parts = [
                self.wire(item, name, call, deeper(place, number))
                for number, item in enumerate(value)
            ]
            return Wired.joined([part.value for part in parts], parts)
        return self._single(value, name, call, place)

    def _whole(self, value: Any) -> Leaf | None:
        """Explain a structure that equals a whole result, or a whole input.

        Every other place that holds it must agree; a short one may be a constant.
        """
        if not isinstance(value, dict | list) or not value:
            return None
        found = [
            reference(self._sources.names[call], parts)
            for call, parts in reversed(self._sources.wholes(value))
        ]
        given = self._inputs.whole(value)
        own = given or next(iter(found), None)
        if own is None:
            return None
        agree = [one for one in dict.fromkeys(found) if one != own]
        new = all(text_key(leaf) in self._explainer.fresh for _, leaf in leaves(value))
        if given is None and information(value) < ENOUGH and not new:
            agree.append(quoted(value))
        how: How = "result" if given is None else "input"
        return Leaf(f"{{{{ {own} }}}}", how, ENOUGH, tuple(agree))

    def _mapping(self, value: Json, call: int, place: str) -> Wired:
        self._explainer.read_together(value)
        parts = {
            key: self.wire(item, str(key), call, deeper(place, str(key)))
            for key, item in value.items()
        }
        self._explainer.read_together({})
        return Wired.joined({key: part.value for key, part in parts.items()}, list(parts.values()))

    def _single(self, value: Any, name: str, call: int, place: str) -> Wired:
        leaf = self._explained(value, name, call, place)
        self.how[call, place] = leaf.how
        acted: tuple[Acted, ...] = ()
        if leaf.how != "parts":
            text = str(leaf.value)
            bare = text.removeprefix("{{ ").removesuffix(" }}") if "{{" in text else quoted(value)
            acted = (Acted(name, value, bare),)
        return Wired(leaf.value, {place: list(leaf.agree)} if leaf.agree else {}, acted)

    def _explained(self, value: Any, name: str, call: int, place: str) -> Leaf:
        found = self._explainer.explanations(value, name)
        stated = next((one for one in found if one.how == "input" and one.bits >= ENOUGH), None)
        if stated is not None:
            return self._given(value, stated.expression, "input", found)
        if self._inputs.said(value) >= ENOUGH:
            given = self._inputs.take(value, name, is_said=True)
            return self._given(value, converted(given.token, value, given.value), "said", found)
        if found and found[0].bits >= ENOUGH and len(found) <= MOST_AGREEING:
            return _derived(found)
        if isinstance(value, str):
            text = self._explainer.template(value)
            if text is not None and text.bits >= ENOUGH:
                return text
        given = self._inputs.take(value, name, is_said=False)
        self.candidates[call, place] = [one.expression for one in found][:MOST_AGREEING]
        return self._given(value, given.token, "asked", found)

    def _given(self, value: Any, expression: str, how: How, found: Sequence[Explanation]) -> Leaf:
        """Return a value that is an input; what else held it must hold it again."""
        agree: dict[str, None] = {}
        for one in found:
            if one.expression == expression:
                continue
            by_keys = one.how in ("key", "result") and is_incredible(value)
            small = how != "asked" and one.how in ("key", "result", "input", "constant", "computed")
            if by_keys or (small and not is_incredible(value)):
                agree[one.expression] = None
        if information(value) >= ENOUGH:
            agree |= dict.fromkeys(self._explainer.memberships(value, expression))
        return Leaf(f"{{{{ {expression} }}}}", how, ENOUGH, tuple(agree)[:MOST_AGREEING])


def _derived(found: Sequence[Explanation]) -> Leaf:
    """Return a value of an earlier result; every other explanation must agree."""
    best = found[0]
    others = [one for one in found if one.expression != best.expression]
    if best.how == "match":
        # The task names the item, so being the cheapest as well is an accident.
        others = [one for one in others if one.how in ("key", "result", "match")]
    agree = tuple(one.expression for one in others)
    return Leaf(f"{{{{ {best.expression} }}}}", best.how, best.bits, agree)
