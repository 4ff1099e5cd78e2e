"""Whether the training is alive and within its limits."""
