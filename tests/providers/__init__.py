"""Providers with what they really start."""
