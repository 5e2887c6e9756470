"""Starts a server on standard input and output for each connection: ``python -m benchmarks.servers.on_stdio PORT COMMAND...``.

The two are pipes, as those of a program that starts its server are: some servers are slower over anything else. Whoever connects is
told where this process has their other ends, opens them in ``/proc``, and says so; then they are that one's alone.
"""

import os
import socket
import subprocess
import sys
from contextlib import suppress

from benchmarks.client import PATIENCE_SECONDS, connect
from benchmarks.peers.peer import HOST


def command(port: int, words: list[str]) -> list[str]:
    """Return what starts this for a server's command."""
    return [sys.executable, "-m", __name__, str(port), *words]


def open_pipes(port: int) -> tuple[int, int]:
    """Have a server started, and return the file descriptors of its standard output and input: to read and to write."""
    with connect(port) as sock:
        process, output, to_input = sock.recv(100).split()
        reading = os.open(f"/proc/{process.decode()}/fd/{output.decode()}", os.O_RDONLY)
        writing = os.open(f"/proc/{process.decode()}/fd/{to_input.decode()}", os.O_WRONLY)
        sock.sendall(b"\n")
    return reading, writing


def main(port: int, words: list[str]) -> None:
    """Start servers until terminated."""
    with socket.create_server((HOST, port)) as listener:
        while True:
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(PATIENCE_SECONDS)
                _hand_on(connection, words)


def _hand_on(connection: socket.socket, words: list[str]) -> None:
    its_input, to_input = os.pipe()
    output, its_output = os.pipe()
    try:
        wanted = b""  # whoever only looks whether somebody listens has no server started
        with suppress(OSError):
            connection.sendall(f"{os.getpid()} {output} {to_input}".encode())
            wanted = connection.recv(1)
        if wanted:
            subprocess.Popen(words, stdin=its_input, stdout=its_output)
    finally:
        for end in (its_input, to_input, output, its_output):
            os.close(end)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
