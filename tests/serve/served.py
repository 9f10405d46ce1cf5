"""The service as it really runs: `em serve` in a process of its own."""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from tests.children import LIMIT
from tests.forks import SERVICE, Fork, start_python


class Served:
    """A running service and a client for it."""

    def __init__(
        self,
        *args: str,
        env: dict[str, str] | None = None,
        db: str = "em.db",
        port: str | None = "0",
    ) -> None:
        given = () if port is None else ("--port", port)
        said, stderr = os.pipe()
        command = ("-m", "em", "--db", db, "serve", *given, *args)
        self.process: Fork | subprocess.Popen[bytes]
        if "--workers" in args:  # its processes are Pythons of their own
            environ = {**os.environ, **(env or {})}
            real = [sys.executable, "-P", *command]
            self.process = subprocess.Popen(real, stderr=stderr, env=environ)
        else:
            self.process = start_python(
                *command, stdin=0, stdout=1, stderr=stderr, loaded=SERVICE, **(env or {})
            )
        os.close(stderr)
        self._stderr = os.fdopen(said)
        first = self._stderr.readline()
        assert '"event":"listening"' in first, first + self._stderr.read()
        self.lines: list[dict[str, Any]] = [json.loads(first)]
        # Read on: a full pipe would stop the service.
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.url = f"http://127.0.0.1:{self.lines[0]['port']}"
        self.http = httpx.Client(base_url=self.url, timeout=60)

    def _read(self) -> None:
        for line in self._stderr:
            self.lines.append(json.loads(line))

    def post(self, path: str, body: Any, key: str = "", **headers: str) -> httpx.Response:
        if key:
            headers["Idempotency-Key"] = key
        return self.http.post(path, json=body, headers=headers)

    def get(self, path: str, **params: Any) -> Any:
        answer = self.http.get(path, params=params)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        self.process.terminate()
        code = self.process.wait(LIMIT)
        self._reader.join(LIMIT)
        self.http.close()
        self._stderr.close()
        return code


Serve = Callable[..., Served]


def token_in(text: str) -> str:
    found = re.search(r'name="form_token" value="([0-9a-f]{64})"', text)
    assert found
    return found[1]


@contextmanager
def log_in(service: Served, token: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=service.url, timeout=60) as browser:
        _log_in(browser, token)
        yield browser


def _log_in(browser: httpx.Client, token: str) -> None:
    form = {
        "form_token": token_in(browser.get("/ui/login").text),
        "token": token,
        "next": "/ui/log",
    }
    answer = browser.post("/ui/login", data=form)
    assert (answer.status_code, answer.headers["location"]) == (303, "/ui/log"), answer.text
