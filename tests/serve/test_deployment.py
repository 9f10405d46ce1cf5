"""The Dockerfile and the compose file, as far as they can be checked without pulling images."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from tests.children import LIMIT

from em.settings import Settings

ROOT = Path(__file__).parents[2]


def run(command: list[str], **how: Any) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(command, capture_output=True, check=False, **how)


def instructions(name: str) -> list[str]:
    """Return what follows an instruction of the Dockerfile, each time it stands there."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    return re.findall(rf"^{name}\s+(.*)$", text, re.MULTILINE)


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
    return found


def test_the_dockerfile_has_nothing_a_linter_finds() -> None:
    linter = shutil.which("hadolint", path=str(Path(sys.executable).parent))
    if linter is None:
        pytest.skip("hadolint is not installed")
    found = run([linter, "Dockerfile"], cwd=ROOT)
    assert (found.returncode, found.stdout) == (0, b"")


def test_the_image_runs_as_nobody_special_and_is_asked_for_its_health() -> None:
    assert instructions("USER") == ["10001:10001"]
    assert len(instructions("FROM")) == 2
    (check,) = instructions("HEALTHCHECK")
    assert "/healthz/ready" in check
    extras = re.search(r"^ARG EXTRAS=(\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert extras
    project = (ROOT / "pyproject.toml").read_text()
    assert all(
        re.search(rf"^{extra} = \[", project, re.MULTILINE) for extra in extras[1].split(",")
    )


def test_everything_that_is_copied_into_the_image_is_let_in() -> None:
    let_in = {
        line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[0] == "!"
    }
    (files, source) = (part.split()[:-1] for part in instructions("COPY")[:2])
    assert {*files, *(name.removeprefix("./") for name in source)} == let_in
    assert all((ROOT / name).exists() for name in let_in)


def test_there_is_a_database_a_service_and_two_workers(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert set(services) == {"postgres", "service", "worker"}
    assert services["postgres"]["image"].startswith("pgvector/pgvector:")
    assert services["worker"]["deploy"]["replicas"] == 2
    for name in ("service", "worker"):
        one = services[name]
        assert one["read_only"] is True
        assert one["depends_on"]["postgres"] == {"condition": "service_healthy"}
        assert one["command"][0] == "em"
    for one in services.values():
        assert one["cap_drop"] == ["ALL"]
        assert one["security_opt"] == ["no-new-privileges:true"]
        assert {"mem_limit", "cpus", "pids_limit"} <= set(one)
    assert ".env" in (ROOT / ".gitignore").read_text().splitlines()
    # Published to this machine alone, and no secret has a value in the file.
    assert services["service"]["ports"] == ["127.0.0.1:8765:8765"]
    text = (ROOT / "compose.yaml").read_text()
    for secret in ("POSTGRES_PASSWORD", "EM_API_TOKEN", "PGPASSWORD"):
        assert re.findall(rf"{secret}: (?!\$\{{\w+:\?)", text) == []


def test_the_services_have_time_to_finish_before_they_are_killed(compose: dict[str, Any]) -> None:
    service = compose["services"]["service"]
    environ = {name: str(value) for name, value in service["environment"].items()}
    api = Settings.load(environ=environ).api
    assert int(service["stop_grace_period"].removesuffix("s")) > api.stop_seconds


def test_the_commands_of_the_compose_file_are_there(compose: dict[str, Any]) -> None:
    for name in ("service", "worker"):
        command = compose["services"][name]["command"]
        shown = run([sys.executable, "-m", "em", *command[1:], "--help"], cwd=ROOT)
        assert shown.returncode == 0, shown.stderr


def test_what_the_wheel_holds_serves_and_passes_the_health_check(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "--wheel-dir", tmp_path, ROOT], check=True, timeout=LIMIT)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        held = set(file.namelist())
        file.extractall(tmp_path / "installed")
    source = {
        str(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src" / "em").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert source <= held
    port = "8799"
    environ = {**os.environ, "PYTHONPATH": str(tmp_path / "installed"), "EM_API_PORT": "0"}
    (command,) = instructions("CMD")[-1:]
    words = [sys.executable, "-P", "-m", *json.loads(command)]
    service = subprocess.Popen(words, cwd=tmp_path, env=environ, stderr=subprocess.PIPE, text=True)
    try:
        assert service.stderr is not None
        port = str(json.loads(service.stderr.readline())["port"])
        assert httpx.get(f"http://127.0.0.1:{port}/ui", timeout=60).status_code == 200
        (check,) = instructions("HEALTHCHECK")
        _python, *rest = json.loads(check.partition(" CMD ")[2])
        environ["EM_API_PORT"] = port
        asked = run([sys.executable, *rest], env=environ)
        assert asked.returncode == 0, asked.stderr
    finally:
        service.terminate()
        _, said = service.communicate(timeout=LIMIT)
    assert service.returncode == 0, said
    asked = run([sys.executable, *rest], env=environ)
    assert asked.returncode != 0
