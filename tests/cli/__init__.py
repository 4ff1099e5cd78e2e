"""The command line, against a small HTTP server with prepared responses."""
