"""The database: its schema, its failures and its queries."""
