"""Running routines: expressions, tools, steps, the journal, resuming."""
