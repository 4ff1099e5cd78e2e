"""Carries out actions: launches, ends of machines, records of runs."""
