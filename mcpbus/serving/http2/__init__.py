"""Serves HTTP/2 itself."""
