"""The database: its schema, its failures, and how it is asked."""
