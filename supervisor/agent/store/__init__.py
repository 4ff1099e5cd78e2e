"""The agent's access to the object store, to the cloud's services and to its supervisor."""
