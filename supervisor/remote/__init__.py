"""Other computers, reached by SSH: connections that are kept, and operations of the agent on a host."""
