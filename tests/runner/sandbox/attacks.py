"""Attacks on a sandbox, the world they are aimed at, and the judge who looks whether it was hit.

No part of it needs pytest: the same attacks run as another user, too.
"""

import os
import secrets
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from em.errors import SandboxError
from em.runner.sandbox.sandbox import MEGABYTE, Limits, Sandbox

LIMITS = Limits(seconds=1.0, memory_bytes=128 * MEGABYTE, output_bytes=MEGABYTE)

PRELUDE = """
def tried(*steps):
    out = []
    for step in steps:
        try:
            out.append(repr(step())[:20000])
        except BaseException as error:
            out.append("refused: " + repr(error)[:200])
    return out

def honest(x):
    return x * 2

"""

ATTACKS = {
    "read a file": '''
def attack(file, **rest):
    import os, io
    return tried(
        lambda: open(file).read(), lambda: open(file, "rb").read(), lambda: io.FileIO(file).read(),
        lambda: os.read(os.open(file, os.O_RDONLY), 100), lambda: io.open_code(file).read(),
    )
''',
    "read a file, plainly": '''
def attack(file, **rest):
    return open(file).read()
''',
    "read a file with pathlib": '''
def attack(file, **rest):
    from pathlib import Path
    return Path(file).read_text()
''',
    "read through another module": '''
def attack(file, **rest):
    import linecache, tokenize, fileinput, runpy, importlib.machinery, zipfile, sqlite3
    return tried(
        lambda: linecache.getlines(file), lambda: tokenize.open(file).read(),
        lambda: list(fileinput.input([file])), lambda: runpy.run_path(file),
        lambda: importlib.machinery.SourceFileLoader("x", file).get_data(file),
        lambda: sqlite3.connect(f"file:{file}?mode=ro", uri=True).execute("select 1").fetchall(),
    )
''',
    "write a file": '''
def attack(folder, **rest):
    import os, io, tempfile, sqlite3
    def db():
        with sqlite3.connect(folder + "/db") as db: db.execute("create table t (x)")
    return tried(
        lambda: open(folder + "/new", "w").write("x"),
        lambda: open(folder + "/new2", "ab").write(b"x"),
        lambda: os.open(folder + "/new3", os.O_CREAT | os.O_WRONLY),
        lambda: os.mkdir(folder + "/d"),
        lambda: os.mkfifo(folder + "/fifo"), lambda: os.mknod(folder + "/node"), db,
        lambda: tempfile.NamedTemporaryFile(dir=folder, delete=False).write(b"x"),
        lambda: os.open(folder, os.O_TMPFILE | os.O_RDWR),
    )
''',
    "write a file, plainly": '''
def attack(folder, **rest):
    with open(folder + "/new", "w") as file:
        file.write("x")
''',
    "change a file": '''
def attack(file, folder, **rest):
    import os, shutil
    return tried(
        lambda: open(file, "r+").write("x"), lambda: os.truncate(file, 0),
        lambda: os.chmod(file, 0),
        lambda: os.utime(file, (1, 1)), lambda: os.rename(file, file + "2"),
        lambda: os.unlink(file),
        lambda: os.chown(file, 1, 1), lambda: os.setxattr(file, "user.x", b"y"),
        lambda: shutil.rmtree(folder), lambda: os.link(file, file + "3"),
        lambda: os.chmod(folder, 0), lambda: os.replace(file, folder + "/other"),
    )
''',
    "list folders": '''
def attack(folder, **rest):
    import os, glob
    found = tried(
        lambda: os.listdir("/"), lambda: os.listdir(folder), lambda: list(os.scandir(folder)),
        lambda: glob.glob(folder + "/*"), lambda: list(os.walk(folder)),
        lambda: os.listdir(os.path.expanduser("~")), lambda: os.listdir("/home"),
        lambda: os.listdir("."), lambda: os.listdir("/tmp"), lambda: os.listdir("/proc"),
    )
    return found
''',
    "list installed packages": '''
def attack(**rest):
    import os
    folder = os.path.dirname(os.__file__)
    return tried(
        lambda: os.listdir(folder + "/site-packages"),
        lambda: os.listdir("/usr/lib/python3/dist-packages"),
    )
''',
    "environment": '''
def attack(pid, **rest):
    import os
    return tried(
        lambda: dict(os.environ), lambda: os.environb, lambda: os.getenv("EM_ATTACK_SECRET"),
        lambda: open("/proc/self/environ").read(), lambda: open("/proc/1/environ").read(),
        lambda: open(f"/proc/{pid}/environ").read(),
        lambda: open(f"/proc/{os.getppid()}/environ").read(),
        lambda: open(f"/proc/{pid}/cmdline").read(),
        lambda: open(f"/proc/{pid}/mem", "rb").read(10),
        lambda: open(f"/proc/{pid}/maps").read(),
    )
''',
    "environment, plainly": '''
def attack(**rest):
    import os
    return dict(os.environ)
''',
    "connect": '''
def attack(port, **rest):
    import socket, http.client, urllib.request
    def by_http():
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
        connection.request("GET", "/")
        return connection.getresponse().read()
    return tried(
        lambda: socket.create_connection(("127.0.0.1", port), 1).send(b"x"),
        lambda: socket.create_connection(("::1", port), 1).send(b"x"), by_http,
        lambda: urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=1).read(),
    )
''',
    "connect, plainly": '''
def attack(port, **rest):
    import socket
    return socket.create_connection(("127.0.0.1", port), 1).send(b"x")
''',
    "datagrams and other sockets": '''
def attack(udp_port, unix, abstract, **rest):
    import socket, asyncio
    def udp():
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        return s.sendto(b"x", ("127.0.0.1", udp_port))
    def named(address):
        s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        return s.sendto(b"x", address)
    def raw():
        return "sockets: " + str(socket.socket(socket.AF_INET, socket.SOCK_RAW, 1).fileno())
    def netlink():
        return "sockets: " + str(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0).fileno())
    def serve():
        s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen(); return "sockets: served"
    return tried(
        udp, lambda: named(unix), lambda: named(b"\\0" + abstract.encode()), raw, netlink, serve,
    )
''',
    "names of the network": '''
def attack(udp_port, **rest):
    import socket
    return tried(
        lambda: "resolved " + str(socket.getaddrinfo("example.com", 80)),
        lambda: "resolved " + str(socket.gethostbyname("example.com")),
    )
''',
    "start a program": '''
def attack(folder, **rest):
    import os, subprocess, pty
    touch = ["/bin/sh", "-c", f"echo x > {folder}/ran"]
    return tried(
        lambda: "ran " + str(os.system(touch[2]) == 0 or 1 / 0), lambda: subprocess.run(touch),
        lambda: subprocess.check_output(["/bin/echo", "started"]),
        lambda: os.popen(touch[2]).read(),
        lambda: os.posix_spawn("/bin/sh", touch, {}), lambda: pty.spawn(touch),
    )
''',
    "start a program, plainly": '''
def attack(folder, **rest):
    import os
    os.system(f"echo x > {folder}/ran")
''',
    "become another program": '''
def attack(folder, **rest):
    import os, sys
    return tried(
        lambda: os.execv("/bin/sh", ["sh", "-c", f"echo x > {folder}/ran; sleep 9"]),
        lambda: os.execv(sys.executable, ["python", "-c", f"open('{folder}/ran', 'w')"]),
    )
''',
    "fork bomb": '''
def attack(folder, **rest):
    import os
    forks = 0
    for _ in range(64):
        try:
            pid = os.fork()
        except BaseException:
            continue
        if pid == 0:
            while True: pass
        forks += 1
    return f"forks: {forks}"
''',
    "many threads and processes": '''
def attack(**rest):
    import threading, multiprocessing, time
    started = []
    def add():
        for _ in range(1000):
            thread = threading.Thread(target=time.sleep, args=(60,), daemon=True)
            thread.start()
            started.append(thread)
    def processes():
        multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,)).start()
        started.append(1)
    tried(add, processes)
    return f"forks: {len(started)}"
''',
    "endless loop": '''
def attack(**rest):
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass
''',
    "endless loop that ignores signals": '''
def attack(**rest):
    import signal
    for number in range(1, 65):
        try:
            signal.signal(number, signal.SIG_IGN)
        except BaseException:
            pass
    while True:
        pass
''',
    "endless sleep": '''
def attack(**rest):
    import time
    time.sleep(1000000)
    return "slept"
''',
    "endless work in C": '''
def attack(**rest):
    return len(str(7 ** (10 ** 9)))
''',
    "endless regular expression": '''
def attack(**rest):
    import re
    return bool(re.match(r"(a+)+$", "a" * 60 + "b"))
''',
    "memory bomb": '''
def attack(**rest):
    kept = []
    while True:
        kept.append("x" * 1000000 + str(len(kept)))
''',
    "memory at once": '''
def attack(**rest):
    return len("x" * (10 ** 11))
''',
    "memory bomb that goes on": '''
def attack(**rest):
    kept = []
    while True:
        try:
            kept.append("x" * 100000 + str(len(kept)))
        except BaseException:
            pass
''',
    "larger limits": '''
def attack(**rest):
    import resource
    hard = resource.RLIM_INFINITY
    found = tried(
        lambda: resource.setrlimit(resource.RLIMIT_AS, (hard, hard)),
        lambda: resource.prlimit(0, resource.RLIMIT_AS, (hard, hard)),
        lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard)),
    )
    kept = "x" * (400 * 1024 * 1024)
    return "got " + str(len(kept))
''',
    "huge result": '''
def attack(**rest):
    return "x" * 50000000
''',
    "huge result of many parts": '''
def attack(**rest):
    return [[] for _ in range(1000000)]
''',
    "huge print": '''
def attack(**rest):
    for _ in range(2000):
        print("x" * 100000)
    return "honest"
''',
    "huge exception": '''
def attack(**rest):
    raise ValueError("x" * 20000000)
''',
    "exception that does not end": '''
def attack(**rest):
    kind = type("Wrong", (Exception,), {"__str__": lambda self: [0 for _ in iter(int, 1)]})
    raise kind()
''',
    "recursion": '''
def attack(**rest):
    return attack(**rest)
''',
    "recursion without a limit": '''
def attack(**rest):
    import sys
    sys.setrecursionlimit(10 ** 9)
    x = []
    for _ in range(10 ** 6):
        x = [x]
    return repr(x) and attack(**rest)
''',
    "deep result": '''
def attack(**rest):
    x = []
    for _ in range(100000):
        x = [x]
    return x
''',
    "deep result in mappings": '''
def attack(**rest):
    x = {}
    for _ in range(3000):
        x = {"a": x}
    return x
''',
    "result that holds itself": '''
def attack(**rest):
    x = []
    x.append(x)
    return x
''',
    "class crawl": '''
def attack(file, folder, **rest):
    found = []
    for kind in ().__class__.__mro__[-1].__subclasses__():
        try:
            space = kind.__init__.__globals__
            for name in ("system", "popen"):
                if name in space:
                    found.append(repr(space[name](f"echo x > {folder}/ran")))
            found.append(repr(space["__builtins__"]["open"](file).read()))
        except BaseException as error:
            pass
    return [text for text in found if "ran" in text or "SECRET" in text]
''',
    "frames and garbage": '''
def attack(**rest):
    import sys, gc
    found = []
    frame = sys._getframe()
    while frame:
        found.append(repr(frame.f_globals)[:5000] + repr(frame.f_locals)[:5000])
        frame = frame.f_back
    found += [text for text in gc.get_objects() if isinstance(text, str) and "SECRET" in text]
    for kept in gc.get_objects():
        if isinstance(kept, dict) and "EM_ATTACK_SECRET" in kept:
            found.append(repr(kept))
    sys.settrace(lambda *a: None)
    sys.setprofile(lambda *a: None)
    return found
''',
    "ctypes": '''
def attack(file, folder, port, **rest):
    import ctypes, struct
    libc = ctypes.CDLL(None)
    libc.system(f"echo x > {folder}/ran".encode())
    libc.creat(f"{folder}/made".encode(), 0o666)
    libc.syscall(85, f"{folder}/made2".encode(), 0o666)
    libc.unlink(file.encode())
    text = ctypes.create_string_buffer(200)
    libc.read(libc.open(file.encode(), 0), text, 200)
    address = struct.pack("=HH4s8x", 2, ((port & 255) << 8) | port >> 8, bytes([127, 0, 0, 1]))
    s = libc.socket(2, 1, 0)
    libc.connect(s, address, 16)
    return [text.raw.hex(), text.value.decode(errors="replace"), f"sockets: {s}" if s >= 0 else ""]
''',
    "more rights": '''
def attack(file, folder, pid, **rest):
    import ctypes, os
    libc = ctypes.CDLL(None)
    calls = {
        "unshare": libc.unshare(0x10000000),
        "mount": libc.mount(b"none", folder.encode(), b"tmpfs", 0, 0),
        "chroot": libc.chroot(folder.encode()), "setuid": libc.setuid(12345),
        "setgid": libc.setgid(12345),
        "ptrace": libc.ptrace(16, pid, 0, 0), "keyctl": libc.syscall(250, 0, -3, 1),
        "bpf": libc.syscall(321, 0, 0, 0), "uring": libc.syscall(425, 8, 0),
        "userfault": libc.syscall(323, 0), "perf": libc.syscall(298, 0, 0, -1, -1, 0),
        "memfd": libc.syscall(319, b"x", 0), "nice": libc.setpriority(0, pid, 19),
        "process_vm": libc.syscall(310, pid, 0, 0, 0, 0, 0), "pidfd": libc.syscall(434, pid, 0),
        "shmget": libc.shmget(0, 4096, 0o1600), "x32": libc.syscall(0x40000000 + 41, 2, 1, 0),
        "socketpair": libc.socketpair(1, 1, 0, ctypes.create_string_buffer(8)),
    }
    return "got: " + ",".join(name for name, result in calls.items() if result >= 0)
''',
    "a signal, plainly": '''
def attack(pid, **rest):
    import os
    os.kill(pid, 10)
''',
    "signals": '''
def attack(pid, **rest):
    import os, signal, ctypes
    libc = ctypes.CDLL(None)
    return tried(
        lambda: os.kill(pid, signal.SIGUSR1), lambda: os.kill(os.getppid(), signal.SIGUSR1),
        lambda: libc.kill(pid, 10),
        lambda: libc.syscall(234, pid, pid, 10), lambda: libc.sigqueue(pid, 10, 0),
        lambda: signal.pidfd_send_signal(os.pidfd_open(pid), signal.SIGUSR1),
    )
''',
    "signals from a pipe": '''
def attack(pid, **rest):
    import fcntl, os, signal
    read, write = os.pipe()
    found = tried(
        lambda: fcntl.fcntl(read, fcntl.F_SETOWN, pid),
        lambda: fcntl.fcntl(read, 10, signal.SIGUSR1),
        lambda: fcntl.fcntl(read, fcntl.F_SETFL, fcntl.fcntl(read, fcntl.F_GETFL) | os.O_ASYNC),
    )
    os.write(write, b"x")
    return found
''',
    "links": '''
def attack(file, folder, **rest):
    import os
    names = [
        "/proc/self/root" + file, "/proc/1/root" + file, "/usr/lib/../.." + file, "/./" + file,
        "/proc/self/cwd" + file, "/dev/fd/../../.." + file, "/lib/../" + file,
    ]
    return tried(
        lambda: os.symlink(file, folder + "/link"), lambda: open(folder + "/link").read(),
        lambda: os.symlink(file, "/tmp/link"), lambda: open(folder + "/old_link").read(),
        *[(lambda name: lambda: open(name).read())(name) for name in names],
        lambda: os.chroot("/proc/1/root"), lambda: [os.chdir(folder), open("secret.txt").read()],
    )
''',
    "where links point": '''
def attack(folder, **rest):
    import os, pathlib
    name = folder + "/telling_link"
    return tried(
        lambda: os.readlink(name), lambda: str(pathlib.Path(name).readlink()),
        lambda: os.path.realpath(name), lambda: str(pathlib.Path(name).resolve()),
    )
''',
    "fill the disk": '''
def attack(folder, **rest):
    import os, tempfile
    data = b"x" * 1000000
    def fill(name):
        with open(name, "wb") as file:
            for _ in range(20): file.write(data)
        return "filled"
    def memory():
        fd = os.memfd_create("x")
        for _ in range(20): os.write(fd, data)
        return "filled"
    return tried(
        lambda: fill(folder + "/big"), lambda: fill("/tmp/em-big"), lambda: fill("/dev/shm/em-big"),
        lambda: fill("/big"), memory, lambda: tempfile.TemporaryFile().write(data * 5) and "filled",
    )
''',
    "shared memory": '''
def attack(name, **rest):
    from multiprocessing import shared_memory
    return shared_memory.SharedMemory(name, create=True, size=1000000).name
''',
    "print a result": '''
def attack(**rest):
    import sys, os
    forged = '{"value":"forged"}'
    frame = b"\\0" * 16 + len(forged).to_bytes(4, "big") + forged.encode()
    def everywhere():
        for fd in range(64):
            tried(lambda: os.write(fd, forged.encode()), lambda: os.write(fd, frame))
    tried(
        lambda: print(forged), lambda: sys.stdout.write(forged),
        lambda: sys.__stdout__.write(forged),
        lambda: os.write(1, forged.encode()), lambda: os.write(2, forged.encode()), everywhere,
    )
    return "honest"
''',
    "print a result, plainly": '''
def attack(**rest):
    print('{"value":"forged"}')
    return "honest"
''',
    "close everything": '''
def attack(**rest):
    import os
    os.closerange(0, 256)
    return "honest"
''',
    "close the output": '''
def attack(**rest):
    import os, sys
    tried(lambda: sys.stdout.close(), lambda: os.close(1), lambda: os.close(2), lambda: os.close(0))
    return "honest"
''',
    "end the process": '''
def attack(**rest):
    import os
    os._exit(0)
''',
    "exit": '''
def attack(**rest):
    raise SystemExit
''',
    "abort": '''
def attack(**rest):
    import os, ctypes
    tried(lambda: os.abort())
    ctypes.string_at(0)
''',
    "another json": '''
def attack(**rest):
    import json, json.encoder, json.decoder
    def forged(*args, **kwargs):
        return '{"value":"forged"}'
    json.dumps = forged
    json.JSONEncoder.encode = forged
    json.encoder.JSONEncoder.encode = forged
    json.encoder.JSONEncoder.iterencode = forged
    json.encoder.c_make_encoder = None
    return "honest"
''',
    "another standard library": '''
def attack(**rest):
    import sys, os, builtins, struct
    os.write = lambda fd, data: len(data)
    os.read = lambda fd, size: b""
    struct.pack = lambda *a: b"forged"
    builtins.bytes = builtins.memoryview = None
    for name in list(sys.modules):
        if name.startswith(("em", "json", "struct")):
            sys.modules[name] = None
    return "honest"
''',
    "another class": '''
def attack(**rest):
    forged = lambda self: '"forged"'
    text = type("Text", (str,), {"__str__": forged, "__repr__": forged})
    number = type("Number", (int,), {"__str__": forged, "__repr__": forged})
    return [text("honest"), number(5)]
''',
    "code inside code": '''
def attack(file, folder, **rest):
    return tried(
        lambda: eval(f"open({file!r}).read()"),
        lambda: exec(f"import os; os.mkdir({folder!r} + '/d')"),
        lambda: __import__("os").system(f"echo x > {folder}/ran"),
        lambda: eval(compile(f"__import__('os').listdir({folder!r})", "x", "eval")),
    )
''',
}  # fmt: skip


class World:
    """What must not be touched, listened at or learned."""

    def __init__(self, folder: Path) -> None:
        self.token = secrets.token_hex(16)
        self.folder = folder
        folder.mkdir()
        folder.chmod(0o777)
        self.file = folder / "secret.txt"
        self.file.write_text(f"SECRET {self.token}")
        self.file.chmod(0o666)
        (folder / f"hidden-{self.token}").write_text("")
        (folder / "old_link").symlink_to(self.file)
        (folder / "telling_link").symlink_to(f"/srv/{self.token}")
        os.environ["EM_ATTACK_SECRET"] = self.token
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", 0))
        self.unix = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.unix.bind(str(folder / "socket"))
        self.abstract_name = f"em-{secrets.token_hex(8)}"
        self.abstract = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.abstract.bind(b"\0" + self.abstract_name.encode())
        self.shared = f"em_{secrets.token_hex(8)}"
        self.signals: list[int] = []
        self._handlers = {
            number: signal.signal(number, lambda number, _frame: self.signals.append(number))
            for number in (signal.SIGUSR1, signal.SIGIO)
        }
        self._before = self._look()

    def facts(self) -> dict[str, Any]:
        """What an attacker knows."""
        return {
            "file": str(self.file),
            "folder": str(self.folder),
            "port": self.tcp.getsockname()[1],
            "udp_port": self.udp.getsockname()[1],
            "unix": str(self.folder / "socket"),
            "abstract": self.abstract_name,
            "pid": os.getpid(),
            "name": self.shared,
        }

    def _look(self) -> Any:
        try:
            status = self.file.stat()
        except OSError as error:
            return str(error)
        return (
            sorted(os.listdir(self.folder)),
            self.file.read_bytes(),
            (status.st_mode, status.st_mtime_ns, status.st_uid, status.st_nlink),
            self.folder.stat().st_mode,
            [os.path.lexists(path) for path in ("/tmp/em-big", "/dev/shm/em-big", "/tmp/link")],
            os.path.exists(f"/dev/shm/{self.shared}"),
        )

    def harm(self) -> list[str]:
        """What happened to the world."""
        found = []
        if self._look() != self._before:
            found.append(f"files: {self._look()}")
        for name in ("tcp", "udp", "unix", "abstract"):
            listener: socket.socket = getattr(self, name)
            listener.setblocking(False)
            try:
                came: Any = listener.accept() if name == "tcp" else listener.recv(100)
            except BlockingIOError:
                continue
            found.append(f"{name}: {came}")
        if self.signals:
            found.append(f"signals: {self.signals}")
        return found

    def close(self) -> None:
        for listener in (self.tcp, self.udp, self.unix, self.abstract):
            listener.close()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        del os.environ["EM_ATTACK_SECRET"]


_SIGNS: dict[str, Callable[[str], bool]] = {
    "a process or a thread was started": lambda text: "forks: " in text and "forks: 0" not in text,
    "a socket was made": lambda text: "sockets: " in text,
    "a name was resolved": lambda text: "resolved " in text,
    "a program ran": lambda text: "ran True" in text or "started" in text,
    "a disk was filled": lambda text: "filled" in text,
    "limits were raised": lambda text: "got 4" in text,
    "rights were given": lambda text: "got: " in text and "got: '" not in text,
    "a result was forged": lambda text: "forged" in text,
    "the root of this machine was listed": lambda text: "'proc'" in text or "'tmp'" in text,
    "installed packages were listed": lambda text: "dist-info" in text or "'pip'" in text,
}


def judged(sandbox: Sandbox, name: str, folder: Path) -> list[str]:
    """Run one attack; what it achieved, which must be nothing."""
    world = World(folder)
    try:
        with sandbox.open(PRELUDE + ATTACKS[name], LIMITS) as session:
            try:
                outcome: Any = session.call("attack", world.facts())
            except SandboxError as error:
                outcome = repr(error.as_dict())
            found = world.harm()
            text = repr(outcome)
            if world.token in text or f"SECRET {world.token}".encode().hex() in text:
                found.append(f"a secret was learned: {text[:2000]}")
            found += [f"{what}: {text[:2000]}" for what, seen in _SIGNS.items() if seen(text)]
            if len(text) > 2 * LIMITS.output_bytes:
                found.append("the outcome is too large")
            found += _aftermath(session)
        return found + world.harm()
    finally:
        world.close()


def _aftermath(session: Any) -> list[str]:
    """After an attack the code may have broken its own session, not the answers of it."""
    for _ in range(3):
        try:
            answer = session.call("honest", {"x": 21})
        except SandboxError:
            continue
        return [] if answer == 42 else [f"a later call was answered with {answer!r}"]
    return ["the session never came back"]
