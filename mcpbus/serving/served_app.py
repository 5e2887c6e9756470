"""The application that a server serves, and what it offers beyond ASGI."""

import logging
from collections.abc import Callable

from mcpbus.core.limit_monitor import LimitMonitor
from mcpbus.protocol.http.messages import HttpResponse, RequestHead
from mcpbus.protocol.principals import Peer
from mcpbus.serving.asgi import AsgiApp, DirectApp, DirectEndpoint, Noting
from mcpbus.serving.request_error import RequestError
from mcpbus.transports.refusal_log import sanitize_for_log

_logger = logging.getLogger("mcpbus.serving")


class ServedApp:
    """An application, as all connections of one server know it.

    Args:
        asgi: The application.
        state: What its lifespan left for its requests.

    Attributes:
        asgi: The same.
        state: The same.
        direct: Returns who serves HTTP requests of a path without ASGI; None if the application is to be called. See `DirectApp`.
    """

    def __init__(self, asgi: AsgiApp, state: dict[str, object] | None = None) -> None:
        self.asgi = asgi
        self.state = {} if state is None else state
        self.direct: Callable[[str], DirectEndpoint | None] = _ask_nobody
        app: object = asgi
        if isinstance(app, DirectApp):
            self.direct = app.direct
        self._noting = app if isinstance(app, Noting) else None
        self._reached = LimitMonitor()

    def note(self, limit: str, whom: Peer | None, consequence: str) -> None:
        """Note that a limit was reached, in the application's record if it keeps one; see `LimitMonitor.note`."""
        reached = self._reached if self._noting is None else self._noting.reached
        reached.note(limit, whom, consequence)

    def refuse(self, fault: RequestError, whom: Peer) -> HttpResponse:
        """Return what a client is told that has sent no request that is served; a limit that it has reached is noted."""
        if fault.limit is not None:
            self.note(fault.limit, whom, f"a request was answered {fault.status}")
        return fault.answer()

    def report(self, failure: BaseException, head: RequestHead | None) -> None:
        """Tell that the application raised while it served a request, if it is known which; it is then answered 500."""
        what = "a request" if head is None else f"{sanitize_for_log(head.verb)} {sanitize_for_log(head.path)}"
        _logger.error("the application raised while it served %s", what, exc_info=failure)


def _ask_nobody(_path: str) -> None:
    """Have every request served through ASGI."""
