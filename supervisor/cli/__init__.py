"""The command line: `spot`."""
