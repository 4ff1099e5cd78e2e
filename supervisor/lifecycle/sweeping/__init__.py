"""Machines that serve nobody."""
