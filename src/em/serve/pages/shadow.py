"""The part of a page that shows how a routine or an engine did beside the agent."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

from em.compiler.shadow import Comparison, ShadowReport, Verdict, shadow_report, stream_of
from em.serve.pages.drawing import Chart, chart
from em.store.protocol import Store
from em.values.times import now

DAYS = 30
SHOWN = 10
LOOKED_AT = 2_000
"""Comparisons that a page counts, the newest: it costs the same with many."""
_NAMES: Mapping[Verdict, str] = {
    "agreed": "agreed",
    "handed_over": "would hand over",
    "differed": "differed",
}


class ShadowView(NamedTuple):
    """The counts, a chart of the last days, and the newest comparisons that did not agree.

    looked_at: how many were counted, if there may be more; else 0.
    """

    report: ShadowReport
    chart: Chart
    newest: Sequence[Comparison]
    looked_at: int


def shadow_view(store: Store, ref: str) -> ShadowView | None:
    """Return what was compared with this version of a routine; None if nothing was."""
    reports = shadow_report(store, ref, newest=LOOKED_AT)
    if not reports:
        return None
    (report,) = reports
    newest = [one for one in report.comparisons if one.verdict != "agreed"][::-1][:SHOWN]
    looked_at = LOOKED_AT if store.head(stream_of(ref))[0] > LOOKED_AT else 0
    return ShadowView(report, _chart(report), newest, looked_at)


def _chart(report: ShadowReport) -> Chart:
    counted = Counter((one.at.date(), one.verdict) for one in report.comparisons)
    today = now().date()
    days = [today - timedelta(days=back) for back in range(DAYS - 1, -1, -1)]
    rows = [(day.isoformat(), [float(counted[day, name]) for name in _NAMES]) for day in days]
    return chart("Beside the agent", list(_NAMES.values()), rows, [""] * len(_NAMES))
