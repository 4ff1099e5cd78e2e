"""The decisions: pure functions from observations to the next state of a run and its actions."""
