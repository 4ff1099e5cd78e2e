"""Listeners to the history."""
