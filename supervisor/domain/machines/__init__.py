"""Machines, their places and their hardware."""
