"""Plain values: canonical JSON, times, ids, strict YAML, JSON Schema. Pure."""
