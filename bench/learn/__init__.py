"""Learn from many traces: what a learnt routine does to tasks that it has never seen."""
