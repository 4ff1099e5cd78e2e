"""The shapes of answers about everything but runs."""
