"""Killed processes, full disks, clocks that step, damaged files: nothing is lost or doubled."""
