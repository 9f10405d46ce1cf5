"""What a run notes of its calls for the journal, and what it knows from before."""

from collections.abc import Collection, Generator, Mapping, Sequence
from typing import Any

import msgspec

from em.models.canonical import Json
from em.models.run import PendingPrompt, RunResult, StepReport
from em.runner.answers import check_answers
from em.runner.effects import Outcome, Write
from em.runner.failures import Pause, plain, quietly
from em.runner.journal import ItemKey, Note, Restored, keepable, question_of
from em.runner.program import CompiledStep
from em.runner.secrets import Secrets

_CONTENT = frozenset(
    {"input", "answers", "args", "key", "result", "error", "fix", "output", "failure", "prompt"}
)
"""What of a note holds values of the run."""


class Notebook:
    """The notes of a run that are not written yet, and what its journal and people told it."""

    def __init__(
        self,
        notes: list[Note] | None,
        restored: Restored | None,
        answers: Mapping[str, Json] | None,
        secrets: Secrets,
    ) -> None:
        # None where there is no journal.
        self._notes = notes
        self._restored = restored or Restored()
        self._answers = answers or {}
        self._secrets = secrets
        self.is_kept = notes is not None

    def answer_to(self, step_id: str, secret: Collection[str] = ()) -> Json | None:
        """What a person said to a prompt, now or before; None if it is to be asked.

        What was answered to secret fields before was not written, so it is asked again.
        """
        now, before = self._answers.get(step_id), self._restored.answers.get(step_id)
        if before is None:
            return now
        if any(name not in (now or {}) for name in secret):
            return None
        return {**before, **(now or {})}

    def known(self, step: CompiledStep, key: ItemKey, *, writes: bool) -> Outcome | None:
        """What the journal has of a call, or a person knows of it; None if it is to be made."""
        restored = self._restored
        if key in restored.results and key not in restored.redacted:
            return Outcome(value=restored.results[key])
        uncertain = key in restored.redacted or (key in restored.in_flight and step.key is None)
        return self._unknown(key) if uncertain and writes else None

    def _unknown(self, key: ItemKey) -> Outcome | None:
        """Ask what became of a call that was under way; the answer counts for that call alone."""
        question = question_of(key)
        prompt = PendingPrompt(
            step_id=question,
            message=(
                f"The run was interrupted while {question.rstrip('?')} was under way."
                " Nobody knows whether it happened. Did it, and with what result?"
            ),
            fields=(
                {"name": "happened", "type": "confirm"},
                {"name": "result", "type": "json", "required": False},
            ),
        )
        answer = self.answer_to(question)
        if answer is None:
            raise Pause(prompt)
        checked = check_answers(prompt, answer)
        return Outcome(value=checked["result"]) if checked["happened"] else None

    def announce(
        self, step: CompiledStep, calls: Sequence[tuple[Json, int | None]], *, writes: bool
    ) -> Generator[Write, Any, None]:
        """Write what is not written yet, with the intent of a step that has an effect."""
        assert self._notes is not None
        if writes:
            intents = [_intent(step, scope, item) for scope, item in calls]
            if len(intents) == 1 and self._notes and self._notes[-1][0] == "step_done":
                # One event says both: half the work of writing two.
                self._notes[-1][1]["next"] = intents[0]
            else:
                self._notes += [("step_started", intent) for intent in intents]
        if self._notes:
            yield Write(self._masked(self._notes))
            self._notes.clear()

    def kept(self, step: CompiledStep, item: int | None, value: Any, report: StepReport) -> Any:
        """A result as the run goes on with it: as the journal keeps it, if there is one."""
        if self._notes is None:
            return value
        result = keepable(value, step.id)
        self._notes.append(_done_note(step, item, result, report))
        return result

    def end(self, result: RunResult) -> Generator[Write, Any, None]:
        """Write what is left, and what became of the run."""
        if self._notes is not None:
            yield Write(self._masked([*self._notes, _last_note(result)]))
            self._notes.clear()

    def _masked(self, notes: list[Note]) -> list[Note]:
        if not self._secrets:
            return notes
        return [(kind, self._hidden(body)) for kind, body in notes]

    def _hidden(self, body: Json) -> Json:
        """A body whose content is masked, and its names not."""
        hide = self._secrets.masked
        hidden = body | {name: hide(body[name]) for name in _CONTENT & body.keys()}
        if "next" in body:
            hidden["next"] = self._hidden(body["next"])
        return hidden


def _intent(step: CompiledStep, scope: Json, item: int | None) -> Json:
    args = keepable(quietly(step.args, scope), step.id)
    body: Json = {"step": step.id, "tool": step.target, "args": args}
    if item is not None:
        body["item"] = item
    if step.key is not None:
        body["key"] = step.key(scope)
    return body


def _done_note(step: CompiledStep, item: int | None, result: Any, report: StepReport) -> Note:
    # What goes without saying is left out: every step waits until this is written.
    body: Json = {"step": step.id, "result": result, "duration_ms": round(report.duration_ms, 3)}
    if report.status != "done":
        body["status"] = report.status
    if report.attempts != 1:
        body["attempts"] = report.attempts
    if item is not None:
        body["item"] = item
    if report.error:
        body["error"] = report.error
    if report.fix is not None:
        body["fix"] = report.fix
    return "step_done", body


def _last_note(result: RunResult) -> Note:
    if result.pending_prompt is not None:
        return "run_paused", {"prompt": msgspec.to_builtins(result.pending_prompt)}
    body: Json = {"status": result.status, "output": keepable(result.output, "return")}
    if result.failure is not None:
        body["failure"] = plain(result.failure)
    return "run_ended", body
