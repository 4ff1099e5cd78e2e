"""The judges of the lifecycle gates: from facts to verdicts."""
