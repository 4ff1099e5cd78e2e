"""The machines: one folder for each provider."""
