"""The nouns, one file for each."""
