"""What a run saved against the recorded agent run, as people and programs read it."""

from typing import Any

import click

from em.cli.output import print_table
from em.runner.journal import PastRun
from em.runner.savings import savings
from em.store.protocol import Store


def saved_as_json(store: Store, past: PastRun) -> dict[str, Any]:
    """Each figure with the agent's, this run's and the difference; null where not recorded."""
    return {
        row.what.replace(" ", "_"): {"agent": row.agent, "run": row.run, "saved": row.saved}
        for row in savings(store, past)
    }


def print_saved(store: Store, past: PastRun, *, err: bool = False) -> None:
    """A table of the same."""
    rows = [
        (row.what, *(_shown(row.what, value) for value in (row.agent, row.run, row.saved)))
        for row in savings(store, past)
    ]
    columns = ("", "the agent", "this run", "saved")
    if not err:
        print_table(columns, rows)
        return
    for row in (columns, *rows):
        click.echo("  ".join(f"{cell:<12}" for cell in row).rstrip(), err=True)


def _shown(what: str, value: float | None) -> str:
    if value is None:
        return "not recorded"
    if what == "seconds":
        return f"{value:,.3f}"
    return f"{value:,.4f}" if what == "cost_usd" else f"{value:,.0f}"
