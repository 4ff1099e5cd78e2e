"""Rules about the code itself, and proof that each of them can fail."""
