"""Machines: which exist, and the release of unused ones."""
