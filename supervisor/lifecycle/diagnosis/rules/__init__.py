"""The rules, by family; `table` puts them in their order."""
