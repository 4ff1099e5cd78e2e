"""`make policy`: the rule of rungs over measured traces."""
