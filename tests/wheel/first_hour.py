"""What `make test-wheel` runs with the Python of an empty environment that has em's wheel alone.

The first example of the README runs as it is, and a folder of transcripts becomes a routine in
three commands. Called with the README and the folder.
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def em(*words: str) -> str:
    """Run a command of em; return what it printed."""
    command = [str(Path(sys.executable).with_name("em")), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def main(readme: Path, transcripts: Path) -> None:
    """Try what a new user tries first."""
    os.chdir(tempfile.mkdtemp(prefix="em-wheel-"))
    example = re.search(r"```python\n(.*?)```", readme.read_text(), re.DOTALL)
    assert example is not None
    subprocess.run([sys.executable, "-c", example[1]], check=True)
    print("the first example of the README runs")
    began = time.monotonic()
    print(em("import", str(transcripts)).splitlines()[-1])
    typed = re.search(r"em (compile .* --keep)", em("routine", "suggest"))
    assert typed is not None
    em(*shlex.split(typed[1]))
    print(em("routine", "list"))
    print(f"from transcripts to a routine in {time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())
