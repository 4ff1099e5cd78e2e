"""One file for each phase of a run: what is decided in it."""
