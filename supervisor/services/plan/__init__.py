"""The plan of a submit, and the spec and launch of a run."""
