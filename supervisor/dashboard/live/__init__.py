"""What keeps open pages up to date: the API's stream of events turned into what they put in place."""
