"""Pages for people: rendered here, with nothing from elsewhere and hardly any script."""
