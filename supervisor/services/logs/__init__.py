"""The log of an attempt."""
