"""Lifecycle gates: the list of checks, and what their verdicts allow."""
