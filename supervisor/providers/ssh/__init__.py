"""Machines on computers that are reached by SSH."""
