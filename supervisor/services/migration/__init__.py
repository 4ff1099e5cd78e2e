"""Runs of the older shell runner become runs of ours."""
