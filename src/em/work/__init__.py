"""Queued work: a queue beside the log, and workers on one machine or many (extra `distributed`)."""
