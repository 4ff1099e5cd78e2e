"""`spot mcp`: the supervisor's API as tools of the Model Context Protocol."""
