"""Write the sessions of the first series into a folder, as Claude Code leaves them on disk."""

import sys
from pathlib import Path

from bench.series.rotation import SERIES, sessions

if __name__ == "__main__":
    for number, one in enumerate(sessions(SERIES[0])):
        folder = Path(sys.argv[1]) / f"-home-ana-{number}"
        folder.mkdir(parents=True)
        (folder / f"{number}.jsonl").write_text(one.text)
