"""The agent: its parts with injected clocks, and whole lives as real processes on a real folder store."""
