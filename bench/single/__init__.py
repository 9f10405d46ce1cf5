"""Cases of one recording each: texts, everyday work, other records, and changes that matter."""
