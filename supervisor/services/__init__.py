"""The use cases behind the doors, one verb per file."""
