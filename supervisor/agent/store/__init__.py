"""The agent's way to the object store, to Google's services and to its supervisor."""
