"""The shapes of answers about runs."""
