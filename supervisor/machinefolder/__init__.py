"""One machine as a folder and a process group through the agent."""
