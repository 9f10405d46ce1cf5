"""`em smoke-llm`: ask the configured model one small question."""

import click

from em.cli.options import everywhere
from em.cli.output import emit, printable
from em.llm import get_llm_client

QUESTION = "Is this connection working? Answer with the word yes."
SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "string"}},
    "required": ["answer"],
    "additionalProperties": False,
}


@click.command("smoke-llm")
@click.option("--provider", metavar="NAME", help="The provider to ask.  [EM_LLM_PROVIDER, em.yaml]")
@click.option("--model", metavar="NAME", help="The model to ask.  [EM_LLM_MODEL, em.yaml]")
@everywhere
def smoke_llm(provider: str | None, model: str | None) -> None:
    """Ask the configured model one small question, with a schema, as em asks all its questions.

    Prints the model, its answer, the time and the tokens. This is a real call: it costs a few
    tokens.
    """
    client = get_llm_client(provider, model)
    # Room for models that think before they answer.
    answer = client.complete(QUESTION, schema=SCHEMA, max_tokens=4096)
    report = {
        "provider": client.provider,
        "model": answer.model,
        "answer": answer.value["answer"],
        "tokens": answer.usage,
        "cost_usd": answer.cost_usd,
        "seconds": round(answer.seconds, 3),
        "attempts": answer.attempts,
    }

    def text() -> None:
        usage = answer.usage
        cost = "unknown" if answer.cost_usd is None else f"{answer.cost_usd:.6f} USD"
        shown = {**report, "tokens": f"{usage.input} read, {usage.output} written", "cost": cost}
        del shown["cost_usd"]
        for name, value in shown.items():
            click.echo(f"{name:<10}{printable(str(value))}")

    emit(report, text)
