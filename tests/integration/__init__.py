"""Several rooms together, on real parts."""
