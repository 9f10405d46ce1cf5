"""The program that a coding agent starts at each hook: pass it on to em's service, and be quick.

    python -I -S hook.py SOCKET FOLDER SERVICE...

The hook's JSON on standard input goes to the service at SOCKET, behind the folder of this plugin
and a NUL, and its answer to standard output. If no service is there, start it (the command SERVICE,
in FOLDER), leave the hook for it in a file, and say nothing. It never waits longer than PATIENCE,
never fails, and imports only the standard library: the agent waits for it.
"""

import os
import sys
from _socket import AF_UNIX, SHUT_WR, SOCK_STREAM, socket  # `import socket` takes twice as long
from time import monotonic, time

PATIENCE = 0.3
"""Seconds."""
STARTING = 15.0
"""Seconds that a service may take to start, before a hook starts another."""


def address_of(name: str) -> str:
    """Return the path of a socket: a name is one in the folder of this user's sockets."""
    temporary = os.environ.get("TMPDIR") or "/tmp"  # noqa: S108 - `make_private` looks at it
    return os.path.join(temporary, f"em-{os.getuid()}", name)


def make_private(folder: str) -> bool:
    """Make a folder that only this user can enter; False if it is one that others can enter."""
    os.makedirs(folder, 0o700, exist_ok=True)
    found = os.lstat(folder)
    is_folder = found.st_mode & 0o170000 == 0o040000
    return is_folder and found.st_uid == os.getuid() and not found.st_mode & 0o077


def ask(address: str, question: bytes, patience: float = PATIENCE) -> bytes | None:
    """Return the service's answer, b"" if it has none in time, None if no service is there."""
    until = monotonic() + patience
    answer = b""
    service = socket(AF_UNIX, SOCK_STREAM)
    service.settimeout(patience)
    try:
        service.connect(address)
        service.sendall(question)
        service.shutdown(SHUT_WR)
        while True:
            service.settimeout(max(until - monotonic(), 0.001))
            part = service.recv(65536)
            if not part:
                return answer
            answer += part
    except (FileNotFoundError, ConnectionRefusedError):
        return None
    except OSError:
        return b""  # half an answer is none
    finally:
        service.close()


def missed(address: str) -> str:
    """Return the file with the hooks that came before the service was there."""
    return address + ".missed"


def leave(address: str, question: bytes) -> None:
    """Leave a hook for the service that is being started. In JSON a line's end is only a blank."""
    with open(missed(address), "ab") as file:
        os.chmod(file.fileno(), 0o600)
        file.write(question.replace(b"\n", b" ") + b"\n")


def starting(address: str) -> str:
    """Return the file that says that a service is being started."""
    return address + ".starting"


def is_starting(address: str) -> bool:
    """Tell whether a service was started lately; if not, note that this hook starts one now.

    An agent that ends kills the hooks that it does not wait for: one that is gone starts nothing.
    """
    try:
        with open(starting(address)) as file:
            hook = file.read()
        is_fresh = time() - os.stat(starting(address)).st_mtime < STARTING
        if is_fresh and (not hook.isdecimal() or is_alive(int(hook))):
            return True
    except FileNotFoundError:
        pass
    note_start(address, str(os.getpid()))
    return False


def is_alive(process: int) -> bool:
    """Tell whether a process goes on."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it is somebody else's
    return True


def note_start(address: str, hook: str = "") -> None:
    """Note that a service is being started, or the process of the hook that is about to."""
    with open(starting(address), "w") as file:
        file.write(hook)
        file.flush()
        os.utime(file.fileno())


def start(folder: str, command: list[str]) -> None:
    """Start the service as a process of its own, which goes on when the agent has ended."""
    import subprocess

    folder = os.path.expanduser(folder)
    subprocess.Popen(  # noqa: S603 - the command that `em install` wrote
        command,
        cwd=folder if os.path.isdir(folder) else "/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def main(address: str, folder: str, *command: str) -> None:
    """Answer one hook."""
    try:
        address = address_of(address)
        plugin = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        question = os.fsencode(plugin) + b"\0" + sys.stdin.buffer.read()
        if not make_private(os.path.dirname(address)):
            return
        answer = ask(address, question)
        if answer is None:
            leave(address, question)
            if not is_starting(address):
                start(folder, list(command))
                note_start(address)
        elif answer:
            sys.stdout.buffer.write(answer)
    except Exception:  # noqa: BLE001, S110 - whatever is wrong with em, the agent goes on
        pass


if __name__ == "__main__":
    main(*sys.argv[1:])
