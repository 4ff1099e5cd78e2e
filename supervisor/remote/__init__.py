"""Other computers, reached by SSH: kept connections, operations of the agent on a host, object stores there."""
