"""What the runs of a token may cost, and the plans with which it starts them."""
