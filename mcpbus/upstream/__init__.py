"""The other server that a proxy stands for: connections to it, what it offers, and calls that are passed on."""
