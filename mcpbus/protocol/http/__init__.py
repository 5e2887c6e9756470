"""The rules of Streamable HTTP, and of what is said over HTTP beside it: pure functions and values."""
