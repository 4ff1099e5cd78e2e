"""The decisions of each phase of a run, one file a phase."""
