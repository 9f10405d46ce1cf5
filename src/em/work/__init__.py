"""Queue jobs and run them with workers, on one machine or many (extra `distributed`)."""
