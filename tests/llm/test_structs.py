"""A model is asked for a Struct: its schema is derived, its answer decoded and corrected."""

from typing import Annotated, Any, Literal

import msgspec
import pytest

from em.errors import BadAnswer, LlmError, LlmUnavailable, MissingKey
from em.llm import ScriptedClient
from em.llm.client import ask_struct, struct_schema
from em.llm.wires import all_required, is_closed

Name = Annotated[str, msgspec.Meta(min_length=1, description="as people say it")]


class City(msgspec.Struct):
    """A docstring is for people."""

    name: Name
    tags: list[str] = []


class Trip(msgspec.Struct, kw_only=True):
    default: City
    stops: list[City]
    by: Literal["rail", "road"] = "rail"
    note: str | None = None
    days: int

    def __post_init__(self) -> None:
        if self.days < len(self.stops):
            raise ValueError("a stop takes a day")


def trip(**changed: Any) -> dict[str, Any]:
    return {"default": {"name": "Porto"}, "stops": [{"name": "Faro"}], "days": 2, **changed}


def test_a_schema_is_closed_plain_and_has_no_defaults() -> None:
    city = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1, "description": "as people say it"},
            "tags": {"type": "array", "items": {"type": "string", "enum": ["old", "new"]}},
        },
        "required": ["name"],
        "additionalProperties": False,
    }
    schema = struct_schema(Trip, {"tags": ["old", "new"]})
    assert schema == {
        "type": "object",
        "properties": {
            "default": city,
            "stops": {"type": "array", "items": city},
            "by": {"enum": ["rail", "road"]},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "days": {"type": "integer"},
        },
        "required": ["default", "stops", "days"],
        "additionalProperties": False,
    }
    assert is_closed(schema)
    assert not all_required(schema)


def test_an_answer_is_decoded() -> None:
    client = ScriptedClient([trip(days=2.0)])
    value, completion = ask_struct(client, Trip, "Where to?", name="trip")
    assert value == Trip(default=City("Porto"), stops=[City("Faro")], days=2)
    assert completion.attempts == 1
    assert client.requests[0].name == "trip"


def test_what_schema_or_struct_refuse_goes_back_to_the_model() -> None:
    client = ScriptedClient([trip(by="air"), trip(days=0), trip()])
    assert ask_struct(client, Trip, "Where to?").value.days == 2
    assert "a stop takes a day" in client.requests[2].prompt


def test_after_three_tries_it_is_a_bad_answer() -> None:
    with pytest.raises(BadAnswer, match="a stop takes a day") as caught:
        ask_struct(ScriptedClient(lambda _: trip(days=0)), Trip, "Where to?")
    assert caught.value.data["problems"]


def test_choices_limit_a_text_too() -> None:
    class Pick(msgspec.Struct):
        one: str

    client = ScriptedClient([{"one": "c"}, {"one": "b"}])
    assert ask_struct(client, Pick, "Which?", choices={"one": ["a", "b"]}).value.one == "b"


class Odd:
    """A client of somebody's own, without the fields that em's have."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def complete(self, *_args: Any, **_options: Any) -> Any:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


KEY = "sk-ant-api03-" + "Zq7xK2mP" * 10


@pytest.mark.parametrize(
    "raised",
    [TimeoutError("late"), ConnectionError(KEY), ValueError(), MissingKey("none", place="")],
)
def test_whatever_a_client_raises_is_an_error_of_the_model(raised: Exception) -> None:
    client: Any = Odd(raised)
    with pytest.raises(LlmUnavailable) as caught:
        ask_struct(client, City, "Where?")
    assert caught.value.__cause__ is raised
    assert KEY not in str(caught.value)


def test_a_client_that_answers_with_something_else_is_an_error_of_the_model() -> None:
    client: Any = Odd(None)
    with pytest.raises(LlmError):
        ask_struct(client, City, "Where?")


@pytest.mark.parametrize("raised", [KeyboardInterrupt(), SystemExit(1)])
def test_what_ends_the_program_is_left_alone(raised: BaseException) -> None:
    client: Any = Odd(raised)
    with pytest.raises(type(raised)):
        ask_struct(client, City, "Where?")
