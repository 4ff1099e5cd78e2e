"""What the agent watches while the command runs: its output, its progress, the reasons to end it."""
