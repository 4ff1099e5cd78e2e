"""The doctor's checks of Google Cloud."""
