"""The nouns of em as frozen data: one noun a module, no I/O. `kinds` lists every kind of event."""
