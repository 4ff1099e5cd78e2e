"""What the agent records of an attempt for later: facts and evidence."""
