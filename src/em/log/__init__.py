"""Events, the registry of their kinds, names of streams, the hash chain, verify, event lines."""
