"""Commands about the supervisor itself."""
