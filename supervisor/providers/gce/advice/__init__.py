"""Advice: which zones have capacity, which settings are unwise, where data is."""
