"""The long random campaigns: `make campaign`."""
