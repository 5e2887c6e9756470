"""The command line.

`mcpbus serve | stdio | demo | routes | top | tape` of a server, `mcpbus inspect | list | call | read | watch | login | logout | install` of a client.
"""

import click

from mcpbus import __version__
from mcpbus.cli.terminal import ExplainingGroup

_COMMANDS = {
    "call": "call.call",
    "demo": "serve.demo",
    "inspect": "inspect.inspect",
    "install": "install.install",
    "list": "inspect.list_",
    "login": "login.login",
    "logout": "login.logout",
    "read": "read.read",
    "routes": "serve.routes",
    "serve": "serve.serve",
    "stdio": "stdio.stdio",
    "tape": "tops.tape",
    "top": "tops.top",
    "watch": "read.watch",
}
"""Where each command is: who asks for one does not wait for the others."""


@click.group(
    cls=ExplainingGroup,
    places={name: f"{__name__}.{place}" for name, place in _COMMANDS.items()},
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__)
def main() -> None:
    """Serve the Model Context Protocol over a bus of actors.

    TARGET is a file or a module, weather.py or weather, and with a name after a colon one of its servers: weather.py:server. Or it is
    elsewhere: a URL, 'stdio:npx -y some-server', or the JSON file in which a client names servers. Each option is an environment
    variable too: MCPBUS_SERVE_BIND is --bind of serve.
    """
