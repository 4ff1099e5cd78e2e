"""What every request passes: connection, door, rates, access."""
