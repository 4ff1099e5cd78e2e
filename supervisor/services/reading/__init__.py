"""What readers see; nothing here changes anything."""
