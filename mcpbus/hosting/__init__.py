"""Servers of other SDKs in this process: how their code runs, and how it reaches clients by the bus."""
