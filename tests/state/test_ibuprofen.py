"""The example of the document: a contradiction, and two rules that fire."""

import subprocess
import sys
from pathlib import Path

DEMO = Path(__file__).parent.parent.parent / "examples" / "ibuprofen" / "demo.py"


def test_the_ibuprofen_example() -> None:
    shown = subprocess.run([sys.executable, str(DEMO)], capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines()[1:] == [
        "  critical: NSAID allergy, confirmed 2025-04-01: moderate",
        "  high: ibuprofen is an NSAID",
        "And paracetamol? nothing fires",
        "Profile.has_allergies is True, by the policy 'latest':",
        "  2024-10-03 form: False (stated)",
        "  2025-04-02 doctor: True (confirmed)",
        "as of January: False, []",
    ]
