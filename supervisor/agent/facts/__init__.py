"""What is noted of an attempt for later: facts and evidence."""
