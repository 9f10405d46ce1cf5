"""One question to a real provider, where the environment says so: EM_LIVE=1 and its key."""

import os

import pytest

from em.errors import BadAnswer, LlmUnavailable
from em.llm import get_llm_client

# Taken at import: no setting of the machine reaches a test otherwise.
_GIVEN = {
    name: value
    for name, value in os.environ.items()
    if name.startswith("EM_LLM_") or name.endswith("_API_KEY")
}
_SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "string"}},
    "required": ["answer"],
    "additionalProperties": False,
}


@pytest.mark.skipif(not os.environ.get("EM_LIVE"), reason="EM_LIVE is not set: it costs tokens")
def test_a_real_provider_answers_by_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in _GIVEN.items():
        monkeypatch.setenv(name, value)
    try:
        answer = get_llm_client().complete("Say yes.", schema=_SCHEMA)
    except (LlmUnavailable, BadAnswer) as error:  # the provider is down, or answers with nothing
        pytest.xfail(str(error))
    assert answer.value["answer"]
