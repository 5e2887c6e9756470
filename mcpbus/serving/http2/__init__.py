"""Serves HTTP/2 itself: h2 keeps the states of streams, and everything else is here."""
