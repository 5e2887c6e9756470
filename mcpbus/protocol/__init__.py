"""The Model Context Protocol without any input or output: messages, errors, revisions, cursors."""
