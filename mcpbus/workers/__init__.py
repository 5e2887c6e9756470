"""Several processes that serve one address: the supervisor, the worker, and what they tell each other."""
