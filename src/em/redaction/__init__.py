"""What secrets look like, and taking them out: for the store, and before a model is asked."""
