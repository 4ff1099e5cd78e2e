"""Machines that are jobs of a Slurm cluster."""
