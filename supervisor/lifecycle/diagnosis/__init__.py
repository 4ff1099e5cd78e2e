"""What an end, a stall or a slow run means: evidence is read into one form, and a table of rules gives the verdict."""
