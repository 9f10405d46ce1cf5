"""Text search over the log: by words always, by meaning where there is an embedder."""
