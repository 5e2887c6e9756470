"""JSON Schema: of Python types, and as somebody wrote it by hand."""
