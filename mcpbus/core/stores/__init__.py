"""Stores of events and of tasks."""
