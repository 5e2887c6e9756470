"""Where figures are: at an address of their own, and with several workers at one for each of them."""

from collections.abc import Iterator
from contextlib import contextmanager

from mcpbus.protocol.http.options import is_loopback
from mcpbus.serving.errors import CannotListenError
from mcpbus.serving.listening import listening
from mcpbus.serving.options import ServeOptions


def addresses_of(metrics: object, workers: int = 1, *, option: str = "metrics") -> list[str]:
    """Return where each of several workers has its figures, and one more, for who is about to take another one's place.

    Args:
        metrics: Where the first one has them, as the author gave it.
        workers: How many there are; one has no successor.
        option: The name of the option.

    Raises:
        ValueError: That cannot be; the message names the option and says what can.
    """
    try:
        ServeOptions(bind=str(metrics))
    except ValueError:
        raise ValueError(
            f"{option} is {metrics!r}: write HOST:PORT (127.0.0.1:9464, [::1]:9464, port 0 for any free one), unix:PATH or fd://NUMBER"
        ) from None
    bind = str(metrics)
    if workers == 1:
        return [bind]
    if bind.startswith("fd://"):
        own = "figures" if option == "metrics" else "an inspector"
        raise ValueError(
            f"{option} is {bind!r}, one socket, and each worker has {own} of its own: write HOST:PORT or unix:PATH"
        )
    found = [address_of(bind, number) for number in range(workers + 1)]
    try:
        ServeOptions(bind=found)
    except ValueError:
        raise ValueError(
            f"{option} is {bind!r}, and {workers} workers need {workers + 1} ports from there on: write a lower one"
        ) from None
    return found


def address_of(bind: str, number: int) -> str:
    """Return where one of several workers has its figures: of `HOST:PORT` the port above, of `unix:PATH` with its number behind it."""
    host, _, port = bind.rpartition(":")
    if number == 0 or port == "0":
        return bind
    return f"{host}:{int(port) + number}" if port.isdecimal() else f"{bind}.{number}"


def check_free(metrics: object, workers: int, *, option: str = "metrics") -> None:
    """See to it that each of several workers can have its figures. One that cannot would be started again and again.

    Raises:
        CannotListenError: One of them could not; the message names the option and the address.
        ValueError: As for `addresses_of`.
    """
    bind = addresses_of(metrics, workers, option=option)
    with naming_the_option(option), listening(ServeOptions(bind=bind)):
        pass


@contextmanager
def naming_the_option(option: str = "metrics") -> Iterator[None]:
    """Have an error of the block that an address cannot be listened on say for what it was."""
    try:
        yield
    except CannotListenError as error:
        raise CannotListenError(f"{option}: {error}") from error


def check_inspect(inspect: object, workers: int = 1) -> None:
    """Refuse an address for the inspector that is not on this machine alone.

    Raises:
        ValueError: It is none; the message says what can be.
    """
    for bind in addresses_of(inspect, workers, option="inspect"):
        if not (bind.startswith("unix:") or is_loopback(bind)):
            raise ValueError(
                f"inspect is {bind!r}, which other machines reach: write a loopback address (127.0.0.1:9474) or unix:PATH"
            )
