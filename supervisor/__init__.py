"""Spot Supervisor: keeps trainings alive on machines that may be taken away."""
