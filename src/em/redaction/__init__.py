"""Find secrets by their patterns or known values, and remove them before storage or a model."""
