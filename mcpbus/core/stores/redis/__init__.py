"""Stores in Redis, and how they reach it."""
