"""What is kept of an attempt: its evidence and its facts."""
