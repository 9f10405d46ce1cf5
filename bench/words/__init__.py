"""Requests in words: six domains, 21 kinds, by authors who had not seen the code."""
