"""The expression language of routines and workflows."""
