"""Every page that three clicks lead to, of a small filled database, in one browser."""

from pathlib import Path

import httpx
import pytest
from bench import audit
from bench.filled.database import SMALL, fill
from served import Serve

pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
pytest.importorskip("axe_playwright_python", reason="axe-core is not installed: it is in `dev`")
pytestmark = pytest.mark.skipif(
    audit.chromium() is None, reason="no Chromium: make setup-browser installs it"
)


def test_three_clicks_lead_to_every_page_and_all_fit_all_readers(
    serve: Serve, tmp_path: Path
) -> None:
    fill(tmp_path / "em.db", SMALL)
    service = serve()
    with httpx.Client(base_url=service.url, timeout=60) as client:
        site = audit.crawl(client, of_a_kind=2, from_a_page=1)
        assert not site.broken
        # What recurs is searched for in the background, with the lowest priority: it may be there.
        missing = {*site.unreached()} - {"/ui/group"}
        assert not missing, "no three clicks lead from the overview to these"
        pages = {link.path: link.address for link in reversed(site.visited)}
        for address in pages.values():
            assert audit.weight(client, address) <= audit.MOST_WEIGHT, address
    with audit.eye(service.url) as eye:
        problems = {one: eye.look(one).problems for one in pages.values()}
    assert not {one: found for one, found in problems.items() if found}


def test_what_is_wrong_with_a_page_is_found(serve: Serve) -> None:
    with audit.eye(serve().url) as eye:
        eye.page.route("**/ui/runs", lambda route: route.fulfill(body=BROKEN))
        found = " ".join(eye.look("/ui/runs").problems)
    for sign in ("2000 px wide on a screen of 390", "screens high", "color-contrast", "not dark"):
        assert sign in found


BROKEN = """<!doctype html><html lang="en"><title>x</title>
<body style="background: #fff; margin: 0">
<main><h1>x</h1><p style="color: #ddd">pale</p>
<div style="width: 2000px; height: 30000px"></div></main></body></html>"""
