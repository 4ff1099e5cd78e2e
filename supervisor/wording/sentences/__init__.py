"""The status of a run in one or two sentences."""
