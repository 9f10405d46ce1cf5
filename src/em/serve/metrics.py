"""Counts for Prometheus, in its text format."""

import threading
from collections import Counter

from em.store.protocol import Health


class Metrics:
    """How many requests there were, and how long they took, by method, route and status."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._seconds: Counter[tuple[str, str]] = Counter()
        self._replayed = 0

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one request."""
        method = method if method in _METHODS else "other"
        with self._lock:
            self._requests[method, route, status] += 1
            # A Counter counts anything that can be added.
            self._seconds[method, route] += seconds  # type: ignore[assignment]

    def replayed(self) -> None:
        """Count a response that was given again."""
        with self._lock:
            self._replayed += 1

    def text(self, health: Health) -> str:
        """All counts."""
        with self._lock:
            requests, seconds = dict(self._requests), dict(self._seconds)
            replayed = self._replayed
        lines = ["# TYPE em_requests_total counter"]
        for (method, route, status), n in sorted(requests.items()):
            labels = f'method="{method}",route="{route}",status="{status}"'
            lines.append(f"em_requests_total{{{labels}}} {n}")
        lines.append("# TYPE em_request_seconds_total counter")
        for (method, route), spent in sorted(seconds.items()):
            lines.append(
                f'em_request_seconds_total{{method="{method}",route="{route}"}} {spent:.6f}'
            )
        for name, kind, value in (
            ("em_replayed_total", "counter", replayed),
            ("em_store_events", "gauge", health.events),
            ("em_store_bytes", "gauge", health.size_bytes),
        ):
            lines += [f"# TYPE {name} {kind}", f"{name} {value}"]
        return "\n".join(lines) + "\n"


_METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})
