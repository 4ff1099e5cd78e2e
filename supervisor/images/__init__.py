"""Training images: built from a folder of the user, and looked up in their registry."""
