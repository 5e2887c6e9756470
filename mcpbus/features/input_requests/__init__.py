"""What a handler may ask its client, and the answers."""
