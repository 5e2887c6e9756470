"""How a client logs in to servers that ask for it (OAuth 2.1, as the specification's "Authorization" has it)."""
