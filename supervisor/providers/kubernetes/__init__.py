"""Machines that are Jobs of a Kubernetes cluster."""
