"""Behaviour cache: an agent's runs, recorded once and replayed without it, behind checks."""
