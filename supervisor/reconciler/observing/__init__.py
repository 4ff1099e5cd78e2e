"""Reads the listings, beats and objects of one tick."""
