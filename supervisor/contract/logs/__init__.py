"""What a command's output says: a table of patterns, a matcher in linear time, and tracebacks."""
