"""Every back end withstands every attack: what it aims at does not happen."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import attacks
import pytest

import em
from em.errors import SandboxBroken, SandboxError
from em.runner.sandbox import Limits, Sandbox, choose, sandbox
from em.runner.sandbox.process import Landlock

FULL_PYTHON = ("bubblewrap", "landlock")
HARMLESS_TO_TEST = [
    "read a file",
    "read a file, plainly",
    "read a file with pathlib",
    "read through another module",
    "write a file",
    "write a file, plainly",
    "change a file",
    "list folders",
    "list installed packages",
    "environment",
    "environment, plainly",
    "connect",
    "connect, plainly",
    "datagrams and other sockets",
    "start a program, plainly",
    "a signal, plainly",
    "links",
    "where links point",
    "class crawl",
    "code inside code",
]
"""Attacks that may succeed in this process without ending it."""


def test_there_are_enough_attacks() -> None:
    assert len(attacks.ATTACKS) >= 16


@pytest.mark.parametrize("name", attacks.ATTACKS)
def test_an_attack_achieves_nothing(sandbox: Sandbox, name: str, tmp_path: Path) -> None:
    assert attacks.judged(sandbox, name, tmp_path / "world") == []


def test_the_same_attacks_without_a_sandbox_are_seen(tmp_path: Path) -> None:
    """The judge is not blind: each of these succeeds where nothing stands in its way."""
    script = f"""
import json, warnings
from pathlib import Path
import attacks
from unconfined import Unconfined
warnings.simplefilter("ignore")
print(json.dumps([
    name for n, name in enumerate({HARMLESS_TO_TEST!r})
    if not attacks.judged(Unconfined(), name, Path({str(tmp_path)!r}) / str(n))
]))
"""
    folder = str(Path(attacks.__file__).parent)
    run = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": folder},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(run.stdout.splitlines()[-1]) == []


def test_code_that_finds_the_channel_answers_for_its_own_call_only(full_python: Sandbox) -> None:
    """Its own result is the code's to choose; the answer to another call is not."""
    code = """
import sys

def forge():
    frame = sys._getframe()
    while "channel" not in frame.f_locals or "request" not in frame.f_locals:
        frame = frame.f_back
    channel, request = frame.f_locals["channel"], frame.f_locals["request"]
    for _ in range(5):
        channel.give(request["secret"], b'{"value":"forged"}')
    return "honest"

def later():
    return "later"
"""
    with full_python.open(code) as session:
        assert session.call("forge", {}) in ("forged", "honest")
        for _ in range(7):
            try:
                assert session.call("later", {}) == "later"
            except SandboxBroken:
                continue


@pytest.mark.parametrize(
    "answer",
    ["[" * 100_000, '{"value":NaN}', "[]", '"x"', "{}", "\\xff", '{"failed":"raised"}',
     '{"failed":"raised","type":1,"message":2,"line":"x"}', '{"failed":"unknown"}', ""],
)  # fmt: skip
def test_nonsense_from_the_process_is_told_as_such(full_python: Sandbox, answer: str) -> None:
    code = f"""
import sys

def forge():
    frame = sys._getframe()
    while "channel" not in frame.f_locals or "request" not in frame.f_locals:
        frame = frame.f_back
    frame.f_locals["channel"].give(frame.f_locals["request"]["secret"], {answer.encode()!r})
"""
    with (
        full_python.open(code, Limits(seconds=2)) as session,
        pytest.raises(SandboxError, match="invalid answer"),
    ):
        session.call("forge", {})


BECOME_ANOTHER = """
import json, os, sys, tempfile
from pathlib import Path
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
"""
AS_ANOTHER = (
    BECOME_ANOTHER
    + """
import attacks
from em.runner.sandbox.sandbox import backends
report = {}
for kind in backends():
    if kind.name == sys.argv[1]:
        report[kind.name] = missing = {"missing": kind.missing()}
        if not missing["missing"]:
            for name in attacks.ATTACKS:
                with tempfile.TemporaryDirectory() as folder:
                    missing[name] = attacks.judged(kind(), name, Path(folder) / "world")
print(json.dumps(report))
"""
)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("name", FULL_PYTHON)
def test_the_attacks_achieve_nothing_for_a_user_without_rights_either(name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        source = Path(em.__file__).parent
        shutil.copytree(source, f"{folder}/em", ignore=shutil.ignore_patterns("__pycache__"))
        import msgspec

        shutil.copytree(Path(msgspec.__file__).parent, f"{folder}/msgspec")
        shutil.copy(attacks.__file__, folder)
        run = subprocess.run(
            [_python_for_all(), "-B", "-c", AS_ANOTHER, name],
            env={"PYTHONPATH": folder, "PATH": os.environ["PATH"]},
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)[name]
    if reason := found.pop("missing"):
        pytest.skip(f"{name}: {reason}")
    assert len(found) == len(attacks.ATTACKS)
    assert {name: harm for name, harm in found.items() if harm} == {}


def _python_for_all() -> str:
    """An interpreter of this version that every user may start."""
    script = f"""
{BECOME_ANOTHER}
import secrets, subprocess
assert sys.version_info[:2] == {sys.version_info[:2]}
subprocess.run([sys.executable, "-c", "import secrets"], check=True)
"""
    for path in (sandbox.interpreter(), "/usr/bin/python3", "/usr/local/bin/python3"):
        if os.path.exists(path):
            run = subprocess.run([path, "-c", script], capture_output=True, check=False)
            if run.returncode == 0:
                return path
    pytest.skip("there is no Python of this version that another user may start")


def test_a_process_of_its_own_with_limits_alone_is_never_chosen() -> None:
    names = {choose("import statistics").name, choose("def f(): return 1").name}
    assert names <= {"monty", "bubblewrap", "landlock"}


LIBRARY = """
import os, sys
from em.runner.sandbox.inside import landlock
from em.runner.sandbox import sandbox
sandbox.library = lambda: sys.argv[1]
landlock.restrict(sandbox.readable())
for name in ("inside.py", "near.py", "link.py", "linked"):
    try:
        path = os.path.join(sys.argv[1], name)
        print(name, os.listdir(path) if os.path.isdir(path) else open(path).read())
    except OSError:
        print(name, "refused")
"""


def test_a_link_in_a_readable_folder_opens_nothing_outside_of_it(tmp_path: Path) -> None:
    """The standard library is allowed entry by entry; an entry may be a link to anywhere."""
    if reason := Landlock.missing():
        pytest.skip(f"landlock: {reason}")
    library, outside = tmp_path / "lib", tmp_path / "outside"
    (library / "site-packages").mkdir(parents=True)
    outside.mkdir()
    (outside / "secret.txt").write_text("SECRET")
    (library / "inside.py").write_text("code")
    (library / "near.py").symlink_to("inside.py")
    (library / "link.py").symlink_to(outside / "secret.txt")
    (library / "linked").symlink_to(outside)
    run = subprocess.run(
        [sys.executable, "-c", LIBRARY, str(library)], capture_output=True, text=True, check=True
    )
    assert run.stdout.splitlines() == [
        "inside.py code", "near.py code", "link.py refused", "linked refused"
    ]  # fmt: skip
