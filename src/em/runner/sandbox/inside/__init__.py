"""What runs inside the confined process, before and around the code: the standard library only.

These modules reach that process as text, since em itself can't be read from there.
"""
