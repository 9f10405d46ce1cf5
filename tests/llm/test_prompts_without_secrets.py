"""A recognisable secret does not reach a model, whichever part of em asks it."""

from pathlib import Path

import msgspec
import pytest

from em import Memory
from em.errors import BadAnswer
from em.llm.client import ask_struct
from em.llm.providers import ScriptedClient
from em.llm.wires import Message

KEY = "sk-ant-api03-a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6"


class Said(msgspec.Struct):
    text: str


def shown(client: ScriptedClient) -> str:
    return repr(client.requests)


@pytest.mark.parametrize("prompt", [f"Use {KEY}", [Message("user", f"token={KEY}")]])
def test_what_em_asks_for_structured_answers_has_no_key(prompt: str | list[Message]) -> None:
    client = ScriptedClient([{"text": "ok"}])
    ask_struct(client, Said, prompt, system=f"password: {KEY}")
    assert KEY not in shown(client)
    assert "[redacted:" in shown(client)


def test_a_model_call_of_a_workflow_has_no_key() -> None:
    Path("em.yaml").write_text(
        "workflows:\n  sum_up:\n    params: [text]\n    steps:\n"
        '      - {name: a, tool: model_call, inputs: {prompt: "{{ params.text }}"}}\n'
    )
    client = ScriptedClient(["done"])
    with Memory("em.db") as memory:
        run = memory.workflow("sum_up", {"text": f"export API_KEY={KEY}"}, client=client)
        assert run.status == "ok", run
    assert KEY not in shown(client)
    assert "[redacted:" in shown(client)


def test_a_question_about_a_subject_has_no_key() -> None:
    client = ScriptedClient(lambda _request: {})
    with Memory("em.db") as memory:
        memory.observe("ana", {"type": "Trip", "city": "Porto"})
        memory.checkpoint("ana")
        with pytest.raises(BadAnswer):  # what it says does not matter here
            memory.ask("ana", f"Is {KEY} the key of a trip?", llm=client)
    assert client.requests
    assert KEY not in shown(client)
