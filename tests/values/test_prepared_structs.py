"""Threads that decode the same Structs for the first time, all at once."""

import subprocess
import sys

CODE = """
import sys, threading
import msgspec
from em.values.canonical import prepare_structs

sys.setswitchinterval(1e-6)
kinds = [
    msgspec.defstruct(f"S{n}", [(f"f{m}", list[int] | None, None) for m in range(20)])
    for n in range(200)
]
inner = [msgspec.defstruct(f"T{n}", [("one", kind)]) for n, kind in enumerate(kinds)]
prepare_structs()
start = threading.Barrier(8)

def decode():
    start.wait()
    for kind in inner:
        assert msgspec.convert({"one": {"f1": [1]}}, kind).one.f1 == [1]

threads = [threading.Thread(target=decode) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print("ok")
"""


def test_structs_that_are_prepared_can_be_decoded_by_many_threads() -> None:
    ran = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, "ok\n"), ran.stderr
