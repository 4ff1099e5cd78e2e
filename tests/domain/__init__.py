"""The values of the domain and of the contract."""
