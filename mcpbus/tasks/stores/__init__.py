"""Task stores: where tasks are, and what came of them, until their time is over."""
