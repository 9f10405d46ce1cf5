"""Models behind one small protocol. Making a client imports its provider's SDK."""

from em.llm.client import Completion, LlmClient, Spent
from em.llm.providers import ScriptedClient, get_llm_client
from em.llm.wires import Message, Tokens

__all__ = [
    "Completion",
    "LlmClient",
    "Message",
    "ScriptedClient",
    "Spent",
    "Tokens",
    "get_llm_client",
]
