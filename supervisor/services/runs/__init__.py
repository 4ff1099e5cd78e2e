"""What is asked for a run: submit, change, stop, resume, purge."""
