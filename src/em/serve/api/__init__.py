"""The HTTP API: one module for each noun, and the shapes of requests and responses."""
