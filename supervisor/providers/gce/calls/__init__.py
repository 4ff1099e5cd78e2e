"""The door to Google's services: clients, retries, errors."""
