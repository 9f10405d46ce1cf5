"""Test worlds: three small applications, ten kinds of task and sixty traps."""
