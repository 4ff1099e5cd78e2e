"""Trainings with real frameworks, and what those were seen to send."""
