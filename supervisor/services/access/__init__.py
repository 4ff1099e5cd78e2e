"""Who may ask: tokens and owners."""
