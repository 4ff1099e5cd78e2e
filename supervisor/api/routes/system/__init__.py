"""The routes of everything but runs."""
