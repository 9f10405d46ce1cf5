"""Heuristics in a memory: kept with their evidence, ranked for a task, and kept healthy by use."""
