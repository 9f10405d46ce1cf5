"""Terms, stems and dates of English texts. Pure."""

ANALYSIS = 4
"""The version of the analysis of `terms`. A store with another version rebuilds its index."""
