"""Tests of the agent: its parts with injected clocks, and whole attempts as real processes on a real folder store."""
