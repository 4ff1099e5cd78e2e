"""Settings, and the formats of a log line."""
