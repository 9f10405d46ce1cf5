"""Does each of four tasks five times on a shared cache, as a process of its own."""

import sys

from test_stores import counting

for _ in range(5):
    for number in range(4):
        with counting(sys.argv[1], []) as engine:
            result = engine(f"t{number}")
            assert result.problem is None, result.problem
            assert result.value.startswith(f"t{number}-")
