"""What a program of a server has that a library has not: signals, standard error, and reports about its loop and its end."""
