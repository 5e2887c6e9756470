"""The option that gives header fields for requests to a URL."""

import click


def read_headers(_: click.Context, option: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Read ``Name: value`` options."""
    if not values:
        return {}
    from mcpbus.client.options import check_fields  # noqa: PLC0415 - most servers are here, and start sooner without it

    headers = {}
    for value in values:
        name, colon, text = value.partition(":")
        try:
            check_fields({name if colon else "": text})
        except ValueError:  # what it holds may be a secret
            raise click.BadParameter("write it as 'Name: value', in ASCII", param=option) from None
        headers[name] = text.strip()
    return headers


class _Field(click.types.StringParamType):
    """A header field; in an environment variable there is one on each line."""

    envvar_list_splitter = "\n"


header_option = click.option(
    "--header",
    "headers",
    multiple=True,
    type=_Field(),
    metavar="'NAME: VALUE'",
    callback=read_headers,
    help="A header field of each request to a URL, such as 'Authorization: Bearer TOKEN'; may be repeated.",
)
