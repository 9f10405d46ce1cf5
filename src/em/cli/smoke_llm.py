"""`em smoke-llm`: one small question to the configured model."""

import click

from em.cli.options import everywhere
from em.cli.output import print_json, printable
from em.llm import get_llm_client

QUESTION = "Is this connection working? Answer with the word yes."
SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "string"}},
    "required": ["answer"],
    "additionalProperties": False,
}


@click.command("smoke-llm")
@click.option("--provider", metavar="NAME", help="Ask this one.  [EM_LLM_PROVIDER, em.yaml]")
@click.option("--model", metavar="NAME", help="Ask this model.  [EM_LLM_MODEL, em.yaml]")
@everywhere
@click.pass_context
def smoke_llm(ctx: click.Context, provider: str | None, model: str | None) -> None:
    """Ask the configured model one small question, by schema, as em asks all its questions.

    Prints who answered, what, and what it took. This is a real call: it costs a few tokens.
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
    if ctx.obj["json"]:
        print_json(report)
        return
    usage = answer.usage
    cost = "unknown" if answer.cost_usd is None else f"{answer.cost_usd:.6f} USD"
    shown = {**report, "tokens": f"{usage.input} read, {usage.output} written", "cost": cost}
    del shown["cost_usd"]
    for name, value in shown.items():
        click.echo(f"{name:<10}{printable(str(value))}")
