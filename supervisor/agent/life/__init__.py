"""One life of the agent, from the claim of the baton to the last beat."""
