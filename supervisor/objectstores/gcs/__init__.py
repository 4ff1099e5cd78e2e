"""Cloud Storage as an object store."""
