"""Events and messages about a run that follow from its state."""
