"""The behaviour cache: what an agent did once is done again without it, behind checks."""
