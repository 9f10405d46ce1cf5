"""`python -m bench.filled OUT.db`: make a filled database, then `em serve --open --db OUT.db`."""

import argparse
import sys
from pathlib import Path

from bench.filled.database import FULL, SMALL, data_folder, fill


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.filled", description=__doc__)
    parser.add_argument("out", type=Path, help="the database to make; it must not exist yet")
    parser.add_argument("--small", action="store_true", help="few of everything")
    parser.add_argument("--own", action="store_true", help="only the project's own samples")
    given = parser.parse_args(words)
    if given.out.exists():
        print(f"{given.out} exists already; name another file, or remove it", file=sys.stderr)
        return 2
    data = None if given.own else data_folder()
    fill(given.out, SMALL if given.small else FULL, data)
    print(f"filled {given.out} from {data or 'samples of the project'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
