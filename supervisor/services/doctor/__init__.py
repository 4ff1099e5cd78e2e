"""The doctor's questions about this set-up."""
