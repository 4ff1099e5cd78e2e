"""Which offer is asked for next, and whose turn it is."""
