"""Several processes that serve as one: what is named in one of them is found from all, over links between them."""
