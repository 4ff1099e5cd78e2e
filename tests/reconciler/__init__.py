"""Tests of the parts of the loop."""
