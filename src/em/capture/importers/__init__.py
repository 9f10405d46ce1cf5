"""Importers: one small module a format, from what agents left on disk to traces."""
