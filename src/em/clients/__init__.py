"""Coding agents: install em into them, answer their hooks, record their sessions as they go.

`hook.py` is the program that an agent starts at each hook. It is copied, and imports nothing of em.
"""
