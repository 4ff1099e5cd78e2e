"""What the API says, shaped for a template: pure, one subject a module."""
