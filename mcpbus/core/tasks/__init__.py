"""The calls that became tasks."""
