"""Machine folders and their processes, on the computer where they are. Part of the agent's archive."""
