"""A database with something on every page, to measure, to test and to picture the pages."""
