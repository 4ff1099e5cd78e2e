"""The routes: each parses, calls one service and shapes the answer."""
