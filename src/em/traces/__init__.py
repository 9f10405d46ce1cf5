"""Taking in what happened: the log as its writers see it, and event lines in files."""
