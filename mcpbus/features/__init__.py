"""What an author writes: tools, resources, prompts and completions, and what they return and raise."""
