"""Inputs that only say which element of a list is meant may say a part of it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from em.compiler.example import Call, Example
from em.compiler.learner import learn
from em.runner.engine import run_routine

KINDS = ("coat", "scarf", "boot", "glove", "cap", "belt", "shawl", "vest")
COLOURS = ("red", "green", "navy", "olive", "beige", "black")
SIZES = ("XS", "S", "M", "L", "XL")


class Wardrobe:
    """Parcels with pieces of clothing, and what else each piece could be had as."""

    def __init__(self) -> None:
        self.parcels: dict[str, Any] = {}
        self.articles: dict[str, Any] = {}
        for k, kind in enumerate(KINDS):
            looks = [{"colour": colour, "size": size} for colour in COLOURS for size in SIZES]
            variants = [
                {"code": f"V{k}{n:03}", "look": look, "in_stock": n % 7 != 4}
                for n, look in enumerate(looks)
            ]
            self.articles[f"A-{100 + k}"] = {"kind": kind, "variants": variants}
        for n in range(16):
            pieces = []
            for one in range(3):
                article = f"A-{100 + (n + 3 * one) % 8}"
                variants = self.articles[article]["variants"]
                chosen = variants[(7 * n + 11 * one) % len(variants)]
                pieces.append(
                    {
                        "code": chosen["code"],
                        "article": article,
                        "kind": self.articles[article]["kind"],
                        "look": dict(chosen["look"]),
                    }
                )
            key = f"P-{4100 + 17 * n}"
            self.parcels[key] = {"parcel": key, "pieces": pieces, "state": "sent"}
        self.calls: list[Call] = []

    def get_parcel(self, parcel: str) -> Any:
        return self.parcels[parcel]

    def get_article(self, article: str) -> Any:
        return {"article": article, **self.articles[article]}

    def swap(self, parcel: str, old: list[str], new: list[str]) -> Any:
        return {"parcel": parcel, "state": "swap planned"}

    def call(self, tool: str, **args: Any) -> Any:
        found = getattr(self, tool)(**args)
        effect: Any = "write" if tool == "swap" else "read"
        self.calls.append(Call(tool, args, json.loads(json.dumps(found)), None, effect))
        return found

    def tools(self) -> dict[str, Callable[..., Any]]:
        def tool(name: str) -> Callable[..., Any]:
            return lambda **args: self.call(name, **args)

        return {name: tool(name) for name in ("get_parcel", "get_article", "swap")}

    @property
    def writes(self) -> list[Any]:
        return [one.args for one in self.calls if one.effect == "write"]


def key_of(number: int) -> str:
    return f"P-{4100 + 17 * number}"


def wanted(number: int, count: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The inputs of a swap, and what it writes."""
    shop = Wardrobe()
    pieces = shop.parcels[key_of(number)]["pieces"][:count]
    inputs: dict[str, Any] = {"parcel": key_of(number), "pieces": [], "wishes": []}
    write: dict[str, Any] = {"parcel": key_of(number), "old": [], "new": []}
    for piece in pieces:
        variants = shop.articles[piece["article"]]["variants"]
        other = next(
            one
            for one in variants
            if one["in_stock"]
            and one["look"]["size"] == piece["look"]["size"]
            and one["look"]["colour"] != piece["look"]["colour"]
        )
        inputs["pieces"].append({"kind": piece["kind"], "look": piece["look"]})
        inputs["wishes"].append({"look": {"colour": other["look"]["colour"]}})
        write["old"].append(piece["code"])
        write["new"].append(other["code"])
    return inputs, write


def recorded(number: int) -> Example:
    shop, (inputs, write) = Wardrobe(), wanted(number, 1 + number % 2)
    parcel = shop.call("get_parcel", parcel=inputs["parcel"])
    for piece in inputs["pieces"]:
        article = next(one["article"] for one in parcel["pieces"] if one["kind"] == piece["kind"])
        shop.call("get_article", article=article)
    shop.call("swap", **write)
    return Example(inputs, shop.calls)


@pytest.fixture(scope="module")
def routine() -> dict[str, Any]:

    return learn("task", [recorded(number) for number in range(12)]).routine


def run(folder: Path, routine: dict[str, Any], inputs: Any, shop: Wardrobe) -> Any:
    (folder / "routine.yaml").write_text(json.dumps(routine))
    return run_routine(folder, inputs, shop.tools())


@pytest.mark.parametrize("keep", [("kind", "look"), ("kind",), ("look",)])
def test_a_part_of_what_was_said_is_enough(
    tmp_path: Path, routine: dict[str, Any], keep: tuple[str, ...]
) -> None:
    inputs, write = wanted(12, 2)
    pieces = [{name: piece[name] for name in keep} for piece in inputs["pieces"]]
    shop = Wardrobe()
    ended = run(tmp_path, routine, {**inputs, "pieces": pieces}, shop)
    assert (ended.status, shop.writes) == ("ok", [write])


def test_a_part_that_fits_several_hands_over(tmp_path: Path, routine: dict[str, Any]) -> None:
    inputs, _ = wanted(12, 1)
    shop = Wardrobe()
    first, second = shop.parcels[key_of(12)]["pieces"][:2]
    second["kind"] = first["kind"]
    pieces = [{"kind": first["kind"]}]
    ended = run(tmp_path, routine, {**inputs, "pieces": pieces}, shop)
    assert (ended.status, shop.writes) == ("needs_input", [])


@pytest.mark.parametrize("piece", [{}, {"kind": "anvil"}, {"price": 3}])
def test_a_description_of_nothing_hands_over(
    tmp_path: Path, routine: dict[str, Any], piece: dict[str, Any]
) -> None:
    inputs, _ = wanted(12, 1)
    shop = Wardrobe()
    ended = run(tmp_path, routine, {**inputs, "pieces": [piece]}, shop)
    assert (ended.status, shop.writes) == ("needs_input", [])


def test_what_is_written_too_stays_required() -> None:
    def with_reasons(number: int) -> Example:
        example = recorded(number)
        reasons = [f"{COLOURS[(number + n) % 6]} is wrong" for n in range(3)]
        said = [
            {**piece, "reason": reason}
            for piece, reason in zip(example.inputs["pieces"], reasons, strict=False)
        ]
        *reads, swap = example.calls
        args = {**swap.args, "reasons": reasons[: len(said)]}
        calls = [*reads, Call("swap", args, swap.result, None, "write")]
        return Example({**example.inputs, "pieces": said}, calls)

    made = learn("task", [with_reasons(number) for number in range(12)]).routine
    assert "reason" in made["input_schema"]["properties"]["pieces"]["items"]["required"]
