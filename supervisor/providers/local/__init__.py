"""Machines on this computer: a folder and a process group each."""
