"""The use cases of the API, one folder per subject."""
