"""Traces: attempts at tasks; recorded, imported from transcripts, stored and listed."""
