"""The decisions, taken alone."""
