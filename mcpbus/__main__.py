"""`python -m mcpbus`: the command line where its script is not on the path."""

from mcpbus.cli import main

main(prog_name="mcpbus")
