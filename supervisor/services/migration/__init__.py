"""Import of runs of the older shell runner."""
