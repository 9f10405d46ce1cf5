"""Routines as something that needs no em: scripts, skills, tools."""
