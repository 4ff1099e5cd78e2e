"""What every request passes: connection, middleware, rate limits, the check of its token."""
