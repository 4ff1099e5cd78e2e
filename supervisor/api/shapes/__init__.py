"""The shapes of requests: bodies and query parameters."""
