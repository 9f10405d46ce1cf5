"""Shell commands as data: their parts, what they do, and the values in them."""
