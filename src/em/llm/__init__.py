"""Models behind one small protocol. No SDK is imported before a client is made."""

from em.llm.interface import Completion, LlmClient, Message, Spent, Tokens
from em.llm.providers import get_llm_client
from em.llm.script import ScriptedClient

__all__ = [
    "Completion",
    "LlmClient",
    "Message",
    "ScriptedClient",
    "Spent",
    "Tokens",
    "get_llm_client",
]
