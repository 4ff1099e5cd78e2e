"""The notifiers: where the outbox delivers announcements to."""
