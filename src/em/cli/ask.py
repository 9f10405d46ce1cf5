"""`em ask`, `em check`, `em alerts`: questions, and the rules that fire."""

from typing import Any

import click
import msgspec

from em.cli.options import everywhere, open_memory
from em.cli.output import count, print_json, printable
from em.errors import UsageError
from em.runner.sandbox.inside.plain import NotPlain, plain
from em.state.rules import Alert, load_rules

_COLOURS = {"critical": "red", "high": "red", "warning": "yellow", "info": "cyan"}


@click.command("ask")
@click.argument("subject")
@click.argument("question", required=False)
@click.option("--code", "own", help="Python of your own over the collections: 'len(trips)'.")
@click.option("--llm", is_flag=True, help="Ask the configured model to write the code.")
@click.option("--as-of", metavar="TIME", help="Of the state at this moment.")
@everywhere
@click.pass_context
def command(
    ctx: click.Context,
    subject: str,
    question: str | None,
    own: str | None,
    llm: bool,
    as_of: str | None,
) -> None:
    """Answer a QUESTION about SUBJECT: by code over its typed records, or from what was said."""
    if (question is None) == (own is None):
        raise UsageError("nothing is asked", fix="give a QUESTION, or --code")
    client = None
    if llm:
        from em.llm import get_llm_client

        client = get_llm_client()
    answer = open_memory(ctx).ask(subject, question, code=own, llm=client, as_of=as_of)
    if ctx.obj["json"]:
        found = {name: getattr(answer, name) for name in answer.__struct_fields__}
        print_json({**found, "value": _told(answer.value)})
        return
    if answer.route == "recall":
        for passage in answer.value:
            click.echo(f"{passage.event_id}  {printable(passage.text)}")
    else:
        click.echo(printable(str(answer.value)))
    how = "a kept question's code" if answer.kept else answer.route
    note = f"; {answer.note}" if answer.note else ""
    click.echo(f"by {how}, from {count(answer.records, 'record')}{note}", err=True)


def _told(value: Any) -> Any:
    """A value as JSON says it; what it can't say as Python writes it."""
    try:
        return plain(msgspec.to_builtins(value))
    except (NotPlain, TypeError):
        return repr(value)


@click.command("check")
@click.argument("subject")
@click.argument("action")
@click.argument("details", nargs=-1, metavar="[NAME=VALUE]…")
@click.option("--rules", type=click.Path(exists=True), help="A Python file with rules of your own.")
@everywhere
@click.pass_context
def check(
    ctx: click.Context, subject: str, action: str, details: tuple[str, ...], rules: str | None
) -> int:
    """The rules that fire before an ACTION of SUBJECT. Exit code 1 if one does.

    \b
    em check ana take drug=ibuprofen
    """
    given: dict[str, Any] = {}
    for detail in details:
        name, sign, value = detail.partition("=")
        if not sign or not name.isidentifier():
            raise UsageError(f"{detail!r} is no detail", fix="write name=value")
        given[name] = _value(value)
    memory = open_memory(ctx)
    if rules is not None:
        memory.subjects.rules += load_rules(rules)
    state = memory.state(subject)
    if action not in state.actions:
        known = (
            f"there are rules about {', '.join(state.actions)}"
            if state.actions
            else "there are none"
        )
        click.echo(f"no rule is about {printable(action)!r}: {known}", err=True)
    return _show(state.check(action, **given), as_json=ctx.obj["json"])


def _value(text: str) -> Any:
    """JSON where it is JSON, else the text itself."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


@click.command("alerts")
@click.argument("subject")
@click.option("--now", metavar="TIME", help="As if it were this moment.")
@click.option("--rules", type=click.Path(exists=True), help="A Python file with rules of your own.")
@everywhere
@click.pass_context
def alerts(ctx: click.Context, subject: str, now: str | None, rules: str | None) -> int:
    """What is due about SUBJECT: deadlines and active windows. Exit code 1 if something is."""
    memory = open_memory(ctx)
    if rules is not None:
        memory.subjects.rules += load_rules(rules)
    return _show(memory.alerts(subject, now), as_json=ctx.obj["json"])


def _show(found: list[Alert], *, as_json: bool) -> int:
    if as_json:
        print_json({"alerts": found})
    for one in () if as_json else found:
        said = one.message + (f": {one.error}" if one.error else "")
        due = f", due {one.due.date().isoformat()}" if one.due else ""
        events = f" ({', '.join(one.event_ids)})" if one.event_ids else ""
        click.secho(one.severity, fg=_COLOURS[one.severity], nl=False)
        click.echo(f"  {printable(one.rule)}: {printable(said)}{due}{events}")
    if not found and not as_json:
        click.echo("nothing fires", err=True)
    return 1 if found else 0
