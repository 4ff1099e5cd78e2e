"""Other computers, reached by SSH: kept connections, operations of the agent on a host, object stores there.

And computers that nobody reaches, which fetch their job: the address where they do."""
