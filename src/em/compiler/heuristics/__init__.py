"""From traces to lessons: what really happened, with its evidence, and nothing else."""
