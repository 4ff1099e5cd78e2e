"""The doctor's questions to Google."""
