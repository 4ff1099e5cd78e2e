"""The agent's own hands on the object stores."""
