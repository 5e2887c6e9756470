"""The inspector: a watched bus as JSON, and as a page, at an address of its own on this machine."""
