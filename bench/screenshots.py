"""`make screenshots`: a picture of every page, light and dark, into docs/images.

The database is made of the project's own samples, so no picture shows anybody's data.
"""

import argparse
import io
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlencode

import httpx

from bench import audit
from bench.filled.database import FULL, fill
from bench.service import served
from em import Memory
from em.runner.history import find_runs

IMAGES = Path(__file__).parents[1] / "docs" / "images"
WIDTH, HEIGHT, COLOURS = 1280, 800, 256
SCHEMES = ("light", "dark")
MOST_BYTES = 100_000


def chosen(memory: Memory) -> dict[str, str]:
    """Return the pages that are worth a picture by name: those with the most to see."""
    traces = {one.trace.mission.goal: one.id for one in memory.traces()}
    desk = next(one for goal, one in traces.items() if "shipping" in goal)
    long = next(one for goal, one in traces.items() if "archive" in goal)
    chore = next(one for goal, one in traces.items() if "Bump the version" in goal)
    waiting = find_runs(memory.store, "workflow", status="needs_input", limit=20).runs
    flow = max(waiting, key=lambda run: run.steps)
    pages = {
        "overview": ("", {}),
        "search": ("/search", {"q": "order"}),
        "recall": ("/recall", {"q": "window seats"}),
        "routine": ("/routine", {"ref": "cancel_order"}),
        "routine-refund": ("/routine", {"ref": "refund"}),
        "state": ("/state", {"subject": "ana"}),
        "trace": ("/trace", {"id": chore, "n": "6"}),
        "trace-desk": ("/trace", {"id": desk}),
        "trace-long": ("/trace", {"id": long}),
        "workflow": ("/run", {"id": flow.run_id}),
    }
    for status in ("ok", "failed", "needs_input"):
        run = find_runs(memory.store, status=status, limit=1).runs[0]
        name = "waiting" if status == "needs_input" else status
        pages[f"run-{name}"] = ("/run", {"id": run.run_id})
    return {
        name: audit.START + path + (f"?{urlencode(given)}" if given else "")
        for name, (path, given) in pages.items()
    }


def others(site: audit.Site, known: dict[str, str]) -> dict[str, str]:
    """Return a page of every other path that the crawl found, by name."""
    taken = {audit.Link(address, 0).path for address in known.values()} - {"/ui/state"}
    found: dict[str, str] = {}
    for link in site.visited:
        name = link.path.removeprefix(audit.START).strip("/").replace("/", "-")
        name = "subjects" if link.address == "/ui/state" else name
        if link.path not in taken and name and name not in found and name not in known:
            found[name] = link.address
    return found


def small(picture: bytes) -> bytes:
    """Return a PNG with a palette, which is a third of the size."""
    from PIL import Image

    out = io.BytesIO()
    with Image.open(io.BytesIO(picture)) as image:
        reduced = image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
        reduced.save(out, "PNG", optimize=True)
    return out.getvalue()


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.screenshots", description=__doc__)
    parser.add_argument("--db", type=Path, help="a filled database; made anew unless it is named")
    parser.add_argument("--out", type=Path, default=IMAGES)
    given = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="em-screenshots-") as folder:
        db = given.db or Path(folder) / "em.db"
        if given.db is None:
            fill(db, FULL)
        return _take(db, given.out)


def _take(db: Path, out: Path) -> int:
    out.mkdir(parents=True, exist_ok=True)
    with Memory(db) as memory:
        pages = chosen(memory)
    large = 0
    with served(db) as url:
        with httpx.Client(base_url=url, timeout=120) as client:
            audit.settle(client)
            pages |= others(audit.crawl(client, of_a_kind=1), pages)
        with audit.eye(url) as eye:
            eye.page.set_viewport_size({"width": WIDTH, "height": HEIGHT})
            for name, address in pages.items():
                for scheme in SCHEMES:
                    picture = small(eye.picture(address, scheme))
                    (out / f"{name}-{scheme}.png").write_bytes(picture)
                    large += len(picture) > MOST_BYTES
                    print(f"{len(picture) / 1e3:6.0f} kB  {name}-{scheme}.png  {address}")
    if large:
        print(f"{large} pictures are larger than {MOST_BYTES:,} bytes", file=sys.stderr)
    return 1 if large else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
