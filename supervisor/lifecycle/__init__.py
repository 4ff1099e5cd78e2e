"""The decisions: pure functions from what was observed to what shall be done."""
