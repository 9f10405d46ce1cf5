"""Search the log and the lessons: by words, and by meaning if there is an embedder."""
