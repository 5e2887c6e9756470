"""Who answers a request: the methods, initialize, and what runs an author's function."""
