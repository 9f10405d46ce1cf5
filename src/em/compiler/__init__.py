"""From traces to routines. No effect on the world, no store; only `*_file` functions write."""
