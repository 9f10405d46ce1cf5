"""Mutated inputs for everything that reads what others wrote; a traceback is a failure."""
