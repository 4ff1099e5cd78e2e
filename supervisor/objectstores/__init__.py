"""The object stores: beats, batons, checkpoints and results."""
