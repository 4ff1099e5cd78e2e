"""The figures: `make bench`."""
