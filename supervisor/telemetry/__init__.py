"""Log lines, redaction, metrics, recordings, and the worker thread that logs its failures."""
