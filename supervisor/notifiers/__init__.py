"""The notifiers: where the outbox is delivered to."""
