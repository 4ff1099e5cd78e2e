"""Requests about runs: submit, change, stop, resume, purge; and the beats of their agents."""
