"""Access: tokens, their owners, and the private files of a data folder."""
