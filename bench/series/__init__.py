"""Series: the same work in several sessions of a coding agent, and whether em learns it."""
