"""One look at the world."""
