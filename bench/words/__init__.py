"""Requests in words: five domains, 17 kinds, by authors who had not seen the code."""
