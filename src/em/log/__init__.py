"""Events and their bodies, the hash chain, verifying, lines of export and import."""
