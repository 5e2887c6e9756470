"""The address of Redis or Valkey, which is looked at where it is written."""

from typing import Final

from mcpbus.protocol.validators import check_text

_SCHEMES: Final = ("redis", "rediss", "unix")


def check_redis_url(url: str) -> None:
    """Refuse what is no address of Redis.

    Raises:
        TypeError: It is no text.
        ValueError: It is none; the message says what to write, and not the address, which may hold a password.
    """
    check_text("Redis", url=url)
    scheme, mark, place = url.partition("://")
    if not mark or not place or scheme not in _SCHEMES:
        begins = f", and not {scheme}://" if mark and scheme not in _SCHEMES else ""
        raise ValueError(
            f"the URL of Redis is redis://HOST:PORT, rediss://HOST:PORT or unix:///path/to/socket{begins}"
        )
