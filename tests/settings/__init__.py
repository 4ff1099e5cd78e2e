"""Settings, and the shapes of a log line."""
