"""What the tests of workflows share."""

from collections.abc import Callable

from em.workflows import Workflows

Write = Callable[..., Workflows]
"""Workflows from YAML, with tools and a model."""
