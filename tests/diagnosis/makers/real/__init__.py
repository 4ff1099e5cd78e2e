"""Real faults on this machine, each seen by the real agent."""
