"""Checkpoints and results: kept, removed, restored."""
