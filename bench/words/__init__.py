"""Requests in words: three domains, ten kinds, by an author who has not seen the code."""
