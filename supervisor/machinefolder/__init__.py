"""Machines that are a folder and a process group each, through the agent."""
