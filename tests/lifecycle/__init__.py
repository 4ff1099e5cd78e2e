"""Tests of the decisions, without the loop."""
