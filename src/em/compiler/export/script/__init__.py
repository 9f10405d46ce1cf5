"""What an exported script is made of beside its steps.

The source of what a script uses is copied into it, so nothing here may import em but from this
folder. Each part does what the runner does in its place; tests compare the two.
"""
