"""The routine's own function."""

import csv
import io


def total_by(text: str, column: str, amount: str) -> dict[str, float]:
    """Sum one column of a CSV text by another."""
    totals: dict[str, float] = {}
    for row in csv.DictReader(io.StringIO(text)):
        totals[row[column]] = totals.get(row[column], 0.0) + float(row[amount])
    return totals
