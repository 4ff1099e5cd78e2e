"""Stories of runs, replayed through the real decisions and the real loop."""
