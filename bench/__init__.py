"""Benchmarks: each figure is a ratio against the thing beside it, measured in the same run."""
