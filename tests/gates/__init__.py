"""Lifecycle gates: the list of checks, verdicts, and set-ups that pass or are stopped."""
