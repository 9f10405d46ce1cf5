"""Live recording of agents that run in other libraries."""
