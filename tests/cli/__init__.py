"""The command line, against a small HTTP server that answers as it is told."""
