"""Conversation: run with progress on the terminal, ask the person what the run asks, go on.

`em run` and `em workflow` talk in the same way: what they run differs, and how it is resumed.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click
import msgspec

from em.cli.output import note, only_results_on_stdout, printable, wants_json
from em.errors import NotFound
from em.runner.answers import AskedField, fields_of, json_or_text, read_number
from em.runner.history import read_run
from em.runner.run import INPUTS, Failure, OutputMissing, PendingPrompt, StepReport
from em.store.protocol import Store

if TYPE_CHECKING:
    from rich.progress import Progress

Recorded = Callable[[], Mapping[str, Any]]
"""Returns the recorded inputs of a routine."""
Ask = Callable[[PendingPrompt], dict[str, Any] | None]


class _Waits(Protocol):
    """The result of a run, which may wait for an answer."""

    @property
    def pending_prompt(self) -> PendingPrompt | None:
        """The question that the run waits for."""


R = TypeVar("R", bound=_Waits)
Go = Callable[[dict[str, Any], "Watcher"], R]
"""Runs with these answers, and tells the watcher about each step."""


def converse(
    start: Go[R],
    resume: Go[R] | None,
    given: dict[str, Any],
    *,
    yes: bool,
    recorded: Recorded | None = None,
) -> R | None:
    """Run, ask the person what the run asks, and resume, until it ends.

    resume: None for a run that can't be resumed, and asks while it runs. recorded: gives the
    recorded inputs, which Enter takes. Return None if the person interrupts the run.
    """
    go = start
    while True:
        try:
            with only_results_on_stdout(), watching(wanted=not wants_json()) as watcher:
                result = go(given, watcher)
            prompt = result.pending_prompt
            reply = (
                None
                if prompt is None or resume is None
                else reply_to(prompt, yes=yes, recorded=recorded)
            )
        except (KeyboardInterrupt, click.Abort):
            return None
        if prompt is None or resume is None or reply is None:
            return result
        given = {**given, prompt.step_id: reply}
        go = resume


def reply_to(
    prompt: PendingPrompt, *, yes: bool, recorded: Recorded | None = None
) -> dict[str, Any] | None:
    """Return the person's answer, if there is a terminal to ask on."""
    ask = sys.stdin.isatty() and not wants_json()
    return answer(prompt, yes=yes, ask=ask, recorded=recorded)


def answer(
    prompt: PendingPrompt, *, yes: bool, ask: bool, recorded: Recorded | None = None
) -> dict[str, Any] | None:
    """Ask a person for the fields of a prompt. Return None if nobody can be asked.

    recorded: gives values of inputs that Enter takes, where the prompt has no better one.
    """
    fields = fields_of(prompt.fields)
    if recorded and _asks_for_inputs(prompt):
        known = recorded()
        fields = [_with_recorded(field, known) for field in fields]
    # A question for inputs is about what is right, which nobody can agree to without looking.
    if yes and not _asks_for_inputs(prompt) and all(field.type == "confirm" for field in fields):
        return {field.name: True for field in fields}
    if not ask:
        return None
    # The labels of a question for inputs say all that its message says.
    note("Some values are not known:" if _asks_for_inputs(prompt) else prompt.message)
    if prompt.problem:
        note(f"not accepted: {prompt.problem}")
    return {field.name: _ask(field, _label(prompt, field)) for field in fields}


def _with_recorded(field: AskedField, recorded: Mapping[str, Any]) -> AskedField:
    """Return a field that shows the recorded value, unless that was a secret."""
    from em.redaction.redactor import MARKER

    value = recorded.get(field.name)
    is_secret = field.type == "secret" or MARKER.search(str(value)) is not None
    return field if value is None or is_secret else field._replace(suggested=field.filled or value)


def _asks_for_inputs(prompt: PendingPrompt) -> bool:
    """Return whether a run asks for inputs; a workflow puts its own step before it."""
    return prompt.step_id.rpartition("/")[2] == INPUTS


def _label(prompt: PendingPrompt, field: AskedField) -> str:
    """Return what to ask for a field, without the colon that the question ends with."""
    if not _asks_for_inputs(prompt):
        return printable(field.label)
    _, colon, known = field.label.partition(": ")
    about = [known] if colon and field.type != "confirm" else []
    about += [f"may be {', '.join(map(shown, field.candidates))}"] if field.candidates else []
    return printable(f"{field.name} ({'; '.join(about)})" if about else field.label)


def _ask(field: AskedField, label: str) -> Any:
    default, kind = field.filled, field.type
    if kind == "json" and default is not None:
        default = msgspec.json.encode(default).decode()
    if kind == "boolean":
        # Enter takes neither: no value is the safe one.
        return click.confirm(label, default=default, err=True)
    if kind == "confirm":
        return click.confirm(label, default=bool(default), err=True)
    if kind == "select":
        choice = click.Choice(field.option_texts)
        told = None if default is None else str(default)
        return click.prompt(label, type=choice, default=told, err=True)
    if kind == "multiselect":
        return _ask_several(field, label)
    types: dict[str, Any] = {"number": read_number, "integer": int, "json": json_or_text}
    if default is None and not field.required:
        read = types.get(kind, str)
        return click.prompt(
            f"{label} (optional)",
            value_proc=lambda text: _converted(read, text) if text else None,
            default="",
            show_default=False,
            err=True,
            hide_input=kind == "secret",
        )
    return click.prompt(
        label, type=types.get(kind, str), default=default, err=True, hide_input=kind == "secret"
    )


def _ask_several(field: AskedField, label: str) -> list[str]:
    options = ", ".join(map(printable, field.option_texts))
    while True:
        text = click.prompt(
            f"{label} (one or more of: {options}; separated by commas)",
            default=", ".join(str(each) for each in field.default or ()),
            show_default=bool(field.default),
            err=True,
        )
        several = [part.strip() for part in text.split(",") if part.strip()]
        if several or not field.required:
            return several
        note("choose at least one")


def _converted(read: Any, text: str) -> Any:
    try:
        return read(text)
    except ValueError:
        kind = "a whole number" if read is int else "a number"
        raise click.UsageError(f"expected {kind}, got {text!r}") from None


_SIGNS = {
    "done": ("✓", "green"),
    "skipped": ("-", "dim"),
    "failed": ("✗", "red"),
    "defaulted": ("!", "yellow"),
}


class Watcher:
    """Gets a call when a step begins and when it ends. This one ignores them."""

    def began(self, step_id: str) -> None:
        """Note that a step begins."""

    def ended(self, report: StepReport) -> None:
        """Note that a step, or one item of it, has ended."""

    def asking(self, ask: Ask) -> Ask:
        """Return a function that asks, and shows nothing else meanwhile."""
        return ask


class _Live(Watcher):
    """Prints each step as it ends, and shows the one that runs."""

    def __init__(self, bar: "Progress") -> None:
        self._bar = bar
        self._task = bar.add_task("", total=None)

    def began(self, step_id: str) -> None:
        self._bar.reset(self._task, description=printable(step_id))

    def asking(self, ask: Ask) -> Ask:
        def alone(prompt: PendingPrompt) -> dict[str, Any] | None:
            self._bar.stop()
            try:
                return ask(prompt)
            finally:
                self._bar.start()

        return alone

    def ended(self, report: StepReport) -> None:
        from rich.text import Text

        sign, style = _SIGNS[report.status]
        line = Text.assemble((sign, style), f" {printable(report.id)}  ", (_times(report), "dim"))
        if report.error:
            line.append(f"  {printable(report.error)}", style)
        self._bar.console.print(line, soft_wrap=True, highlight=False)


def _times(report: StepReport) -> str:
    if report.status == "skipped":
        return "skipped"
    tries = f", {report.attempts} attempts" if report.attempts > 1 else ""
    return f"{report.duration_ms:.1f} ms{tries}"


@contextmanager
def watching(*, wanted: bool) -> Iterator[Watcher]:
    """Show the progress of a run, if it is wanted and standard error is a terminal."""
    if not wanted or not sys.stderr.isatty():
        yield Watcher()
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    # Transient: at the end, also after Ctrl-C, only the finished steps stay on the screen.
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield _Live(bar)


def print_interrupted(store: Store | None, run_id: str, again: str) -> int:
    """Print how to resume an interrupted run, if it has a journal; return the exit code."""
    note("interrupted")
    if store is not None:
        with suppress(NotFound):
            read_run(store, run_id, kind=None)
            note(f"  resume with: {again}")
    return 130


def print_failure(failure: Failure) -> None:
    """Print why a run failed."""
    why, more = failure_lines(msgspec.structs.asdict(failure))
    click.secho("failed", fg="red", nl=False, err=True)
    click.echo(f": {why}", err=True)
    if more:
        click.echo(more, err=True)


def failure_lines(failure: Mapping[str, Any]) -> tuple[str, str]:
    """Describe a failure: the step with its error, and what else is known about it.

    That is why a model, if asked, found no fix, or that the call may have happened all the same,
    and which effects came before it.
    """
    step, message = failure.get("step_id"), printable(failure["message"])
    place = f"step {step}: " if step and not message.startswith(f"step {step}") else ""
    context = failure.get("context") or {}
    names = {"outcome": "its outcome is", "fix": "no fix:"}
    more = [
        f"  {words} {printable(str(context[name]))}"
        for name, words in names.items()
        if context.get(name)
    ][:1]
    if context.get("done") and failure["error_type"] != OutputMissing.__name__:
        more.append(f"  done before, and not undone: {printable(', '.join(context['done']))}")
    return f"{place}{failure['error_type']}: {message}", "\n".join(more)


def print_prompt(prompt: PendingPrompt, verb: str = "waits for an answer") -> None:
    """Print the question that a run waits for, and why the last answer was not accepted."""
    if _asks_for_inputs(prompt):
        note(f"{verb}: some values are not known")
        for field in fields_of(prompt.fields):
            note(f"  {_label(prompt, field)}")
    else:
        note(f"{verb}: {prompt.message}")
    if prompt.problem:
        note(f"  not accepted: {prompt.problem}")


_EXAMPLES = {
    "boolean": "true or false",
    "confirm": "true or false",
    "integer": "a whole number",
    "number": "a number",
}


def how_to_answer(prompt: PendingPrompt) -> str:
    """Say what to write into the file of answers; `--yes` where yes is the only answer."""
    fields = fields_of(prompt.fields)
    example = {prompt.step_id: {field.name: _EXAMPLES.get(field.type, "…") for field in fields}}
    way = f"--answers FILE, with {shown(example)}"
    is_agreeing = all(field.type == "confirm" for field in fields) and not _asks_for_inputs(prompt)
    return f"{way}, or --yes" if is_agreeing else way


def shown(value: Any) -> str:
    """Return a value as JSON on one line, shortened."""
    return printable(msgspec.json.encode(value).decode())[:400]
