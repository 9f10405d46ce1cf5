"""From observations to state: typed classes, records and rules."""
