"""Health of heuristics: record feedback, retire, merge duplicates."""

from collections.abc import Iterable, Iterator, Sequence
from math import sqrt

import msgspec

from em.compiler.calls import TracedCall, calls_of
from em.errors import UsageError
from em.heuristics.failure import error_text, fits
from em.heuristics.heuristic import (
    Heuristic,
    Lesson,
    Retired,
    Use,
    Used,
    change_heuristic,
    find_heuristic,
    get_heuristic,
    learn,
    learned_from,
    searched_text,
)
from em.heuristics.relevance import content_words, similarity
from em.log.event import HEURISTIC_PREFIX, Draft, EventQuery, heuristic_stream, told_stream
from em.log.kinds import event_body
from em.recall.search import LessonRecall
from em.store.log import anchor
from em.store.protocol import Commit, Store, Within
from em.text.terms import stems_of, words_of
from em.traces.trace import KeptTrace, Outcome, least_trusted
from em.values.times import now

ALIKE = 0.6
"""Lessons in free words whose triggers share this part of their words are about the same."""
RETIRE_BELOW = 0.5
"""Retire a heuristic if, with 95% confidence, fewer of its runs succeed than this."""
LOOKED_AT = 10


@event_body("lessons_told")
class LessonsTold(msgspec.Struct, frozen=True):
    """A coding agent was told these lessons, by their ids, in a session with these traces."""

    lessons: Sequence[str]
    traces: Sequence[str]


@event_body("lessons_judged")
class LessonsJudged(msgspec.Struct, frozen=True):
    """A session ended, and the lessons that it was told were judged."""


def note_told(store: Store, session: str, told: LessonsTold) -> None:
    """Store which lessons a session was told: whoever judges them may be another process."""
    body = msgspec.to_builtins(told)
    draft = Draft(stream=told_stream(session), kind="lessons_told", body=body)
    store.commit(Commit(events=[draft]))


def take_told(store: Store, session: str) -> LessonsTold:
    """Return the lessons that a session was told since they were last judged, once."""
    lessons: dict[str, None] = {}
    traces: dict[str, None] = {}
    for event in store.read(EventQuery(stream=told_stream(session))):
        if event.kind == "lessons_judged":
            lessons, traces = {}, {}
        elif event.kind == "lessons_told" and event.body is not None:
            lessons |= dict.fromkeys(event.body["lessons"])
            traces |= dict.fromkeys(event.body["traces"])
    if lessons:
        draft = Draft(stream=told_stream(session), kind="lessons_judged", body={})
        store.commit(Commit(events=[draft]))
    return LessonsTold([*lessons], [*traces])


def feedback(
    store: Store,
    heuristic_ids: Iterable[str],
    outcome: Outcome,
    *,
    task: str = "",
    trace: str = "",
    subject: str | None = None,
) -> list[Heuristic]:
    """Record a run's outcome for the heuristics that it used; return them as they are now.

    Heuristics whose runs keep failing are retired. subject: who the task is about.
    """
    if outcome not in ("success", "failure", "unknown"):
        raise UsageError(
            f"outcome must be success, failure or unknown, got {outcome!r}", place="outcome"
        )
    found = [get_heuristic(store, heuristic_id) for heuristic_id in dict.fromkeys(heuristic_ids)]
    used = Used(outcome, task, trace, [] if subject is None else [anchor(store, subject)])
    return [_use(store, heuristic.id, used) for heuristic in found]


def _use(store: Store, heuristic_id: str, used: Used) -> Heuristic:
    def become(heuristic: Heuristic) -> tuple[Draft, Use]:
        before = heuristic.use
        use = msgspec.structs.replace(
            before,
            used=before.used + 1,
            helped=before.helped + (used.outcome == "success"),
            hindered=before.hindered + (used.outcome == "failure"),
            last_used=now().isoformat(),
        )
        return _draft(heuristic, "heuristic_used", used), use

    change_heuristic(store, heuristic_id, become)
    heuristic = get_heuristic(store, heuristic_id)
    use = heuristic.use
    if not heuristic.retired and goes_along_with_failures(use):
        reason = f"{use.hindered} of the {use.helped + use.hindered} runs that used it failed"
        return retire(store, heuristic_id, reason)
    return heuristic


def judged(
    store: Store, traces: Sequence[KeptTrace], heuristic_ids: Iterable[str]
) -> dict[str, Outcome]:
    """Tell whether lessons helped in a session that was told them.

    It went well if the failure that a lesson is about occurred and was repaired, and badly if the
    same failure came back. Where it did not occur, or the call was not made again, nobody knows.
    """
    calls = [calls_of(one.trace, {}, as_made=True)[0] for one in traces]
    found: dict[str, Outcome] = {}
    for heuristic_id in heuristic_ids if traces else ():
        heuristic = find_heuristic(store, heuristic_id)
        if heuristic is not None and not heuristic.retired:
            ends = [end for one in calls for end in ends_of(one, heuristic.lesson)]
            found[heuristic_id] = (
                "failure" if "failure" in ends else "success" if "success" in ends else "unknown"
            )
    return found


def ends_of(calls: Sequence[TracedCall], lesson: Lesson) -> Iterator[Outcome]:
    """Yield how each failure of a trace ended that a lesson is about."""
    failed = [
        call
        for call in calls
        if call.failed
        and call.name == lesson.program
        and fits(lesson.error, error_text(call.error))
    ]
    for number, call in enumerate(failed):
        later = calls[call.index + 1 :]
        if number:
            yield "failure"
        elif any(one.name == call.name and not one.failed for one in later):
            yield "success"


def goes_along_with_failures(use: Use) -> bool:
    """Tell whether even the upper bound of its success rate (Wilson, 95%) is too low."""
    n = use.helped + use.hindered
    if not n:
        return False
    z = 1.96
    share = use.helped / n
    middle = share + z * z / (2 * n)
    spread = z * sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return (middle + spread) / (1 + z * z / n) < RETIRE_BELOW


def retire(store: Store, heuristic_id: str, reason: str = "", *, into: str = "") -> Heuristic:
    """Retire a heuristic; its history stays in the log."""
    heuristic = get_heuristic(store, heuristic_id)
    if heuristic.retired:
        return heuristic
    retired = Retired(reason, into)
    change_heuristic(
        store,
        heuristic_id,
        lambda found: (_draft(found, "heuristic_retired", retired), found.use),
        retire=True,
    )
    return get_heuristic(store, heuristic_id)


def _draft(heuristic: Heuristic, kind: str, body: Used | Retired) -> Draft:
    return Draft(
        stream=heuristic_stream(heuristic.id),
        kind=kind,
        body=msgspec.to_builtins(body),
        subject=heuristic.lesson.subject,
    )


def merge(store: Store, keep: str, others: Sequence[str]) -> Heuristic:
    """Merge heuristics: all evidence goes to `keep`, the others are retired."""
    target = get_heuristic(store, keep)
    for other_id in dict.fromkeys(others):
        other = get_heuristic(store, other_id)
        if other_id == keep:
            raise UsageError("a heuristic can't be merged into itself", place=other_id)
        if other.lesson.subject != target.lesson.subject:
            raise UsageError(
                "the lessons are about different subjects", place=f"{keep}, {other_id}"
            )
        learned = learned_from(store, other_id)
        learn(store, [as_another(lesson, target.lesson) for lesson in learned])
        retire(store, other_id, "merged", into=keep)
    return get_heuristic(store, keep)


def as_another(lesson: Lesson, target: Lesson) -> Lesson:
    """Return another lesson's words with this lesson's evidence, as far as that is trusted."""
    return msgspec.structs.replace(
        target,
        evidence=lesson.evidence,
        doubt=lesson.doubt or target.doubt,
        source=least_trusted([lesson.source, target.source]),
    )


def without_duplicates(store: Store, lessons: Iterable[Lesson]) -> list[Lesson]:
    """Replace lessons in free words by stored ones that say the same, with the new evidence."""
    return [_as_known(store, lesson) for lesson in lessons]


def _as_known(store: Store, lesson: Lesson) -> Lesson:
    if lesson.key:
        return lesson
    for found in _near(store, lesson):
        if found.id == lesson.id or is_near_duplicate(found.lesson, lesson):
            return as_another(lesson, found.lesson)
    return lesson


def is_near_duplicate(one: Lesson, other: Lesson) -> bool:
    """Tell whether two lessons say to do the same, in nearly the same situation.

    Actions must have the same words, however short: a "not" makes another one of it.
    """
    return (
        one.subject == other.subject
        and one.polarity == other.polarity
        and set(stems_of(words_of(one.action))) == set(stems_of(words_of(other.action)))
        and similarity(content_words(one.trigger), content_words(other.trigger)) >= ALIKE
    )


def _near(store: Store, lesson: Lesson) -> list[Heuristic]:
    search = LessonRecall(store)
    scope = Within(lesson.subject or "", lessons=True)
    hits = search(searched_text(lesson), scope, LOOKED_AT)
    ids = [hit.passage.stream.removeprefix(HEURISTIC_PREFIX) for hit in hits]
    found = [find_heuristic(store, heuristic_id) for heuristic_id in ids]
    return [one for one in found if one is not None and not one.retired]
