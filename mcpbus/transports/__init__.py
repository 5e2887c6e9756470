"""The ways in: how HTTP requests are judged, without any input or output, and the thin shells that carry it out."""
