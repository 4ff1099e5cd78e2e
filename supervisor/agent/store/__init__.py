"""The agent's way to the object store, to the cloud's services and to its supervisor."""
