"""Queued work: a queue beside the log, and workers on one machine or many (extra `distributed`)."""

from em.work.queue import Queue
from em.work.worker import Worker

__all__ = ["Queue", "Worker"]
