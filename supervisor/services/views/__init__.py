"""Values of the domain as the JSON of the API."""
