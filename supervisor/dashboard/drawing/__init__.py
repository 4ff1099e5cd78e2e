"""Lines and bars over time as numbers that a template draws: pure, from what the API says."""
