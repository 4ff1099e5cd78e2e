"""Which offer a run requests next, and its place in the queue."""
