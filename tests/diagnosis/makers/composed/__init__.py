"""Cases put together from documented texts and records, where no machine here can make them. Every one says so."""
