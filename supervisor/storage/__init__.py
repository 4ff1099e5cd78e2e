"""The store on SQLAlchemy Core: SQLite and PostgreSQL behind one code."""
