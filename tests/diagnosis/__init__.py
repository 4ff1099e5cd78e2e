"""How often the verdicts about ends, stalls and slow runs are right: a labeled corpus and what is measured on it."""
