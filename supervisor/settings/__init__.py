"""Settings from flags, environment, file and defaults."""
