"""Sends announcements and webhook messages."""
