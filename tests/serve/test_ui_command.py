"""`em serve --open`: prints the address of the pages, starts a service, opens a browser."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from served import Serve
from tests.children import LIMIT, wait_until
from tests.forks import SERVICE, command_line


@contextmanager
def started(*args: str, **env: str) -> Iterator[subprocess.Popen[str]]:
    without = {name: value for name, value in os.environ.items() if "DISPLAY" not in name}
    process = subprocess.Popen(
        command_line("-m", "em", "serve", "--open", *args, loaded=SERVICE),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**without, **env},
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.terminate()


def first_line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_it_starts_the_service_and_prints_where(tmp_path: Path) -> None:
    with started("--port", "0") as process:
        url = first_line(process)
        assert url.endswith("/ui")
        assert httpx.get(url).status_code == 200
        process.terminate()
        assert process.wait(LIMIT) in (0, -15)


def test_it_opens_the_browser_of_the_user(tmp_path: Path) -> None:
    told = tmp_path / "told"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {told}.part && mv {told}.part {told}\n')
    browser.chmod(0o755)
    with started("--port", "0", "--json", BROWSER=f"{browser} %s") as process:
        shown = json.loads(first_line(process))
        assert shown["started"] is True
        assert httpx.get(shown["url"]).status_code == 200
        wait_until(told.exists)
    assert told.read_text().strip() == shown["url"]


def test_a_service_that_runs_already_is_used(serve: Serve) -> None:
    service = serve()
    with started("--port", service.url.rpartition(":")[2], "--json") as process:
        assert json.loads(first_line(process)) == {"url": f"{service.url}/ui", "started": False}
        assert process.wait(LIMIT) == 0
