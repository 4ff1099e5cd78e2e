"""The loop: observe, decide, commit, act."""
