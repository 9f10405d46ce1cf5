"""Right or refuse: what routines do to real databases, beside what they should do."""
