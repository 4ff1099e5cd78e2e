"""Records of an attempt: its evidence and its facts."""
