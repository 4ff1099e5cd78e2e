"""Log fields, metrics, redaction and recordings."""
