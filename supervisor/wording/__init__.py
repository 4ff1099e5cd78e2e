"""Every text about a run that people read, made from pure values."""
