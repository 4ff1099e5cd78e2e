"""How runs look in a terminal: from the API's JSON to lines of text."""
