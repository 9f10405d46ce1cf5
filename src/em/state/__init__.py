"""A subject's compiled state: checkpoint it, load it, ask it, fire its rules."""
