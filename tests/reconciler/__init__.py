"""The loop's parts."""
