"""The doctor: checks of this set-up."""
