"""Recording while agents of other libraries run."""
