"""Heuristics: lessons with their evidence, ranked for a task, and retired when they fail."""
