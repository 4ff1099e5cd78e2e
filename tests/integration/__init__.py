"""Several packages together, on real databases."""
