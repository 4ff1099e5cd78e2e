"""Training images: made from a folder of the user, and found in their registry."""
