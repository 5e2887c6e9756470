"""Stores in a file of SQLite."""
