"""The database under the store: connection, schema, locks, wakes."""
