"""The routes: each parses a request, calls one service, and declares the response."""
