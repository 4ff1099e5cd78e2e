"""The course of one attempt, from the claim of the baton to the last beat."""
