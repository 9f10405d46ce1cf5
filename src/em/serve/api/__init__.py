"""JSON over HTTP: one module a noun, and the shapes that go in and out."""
