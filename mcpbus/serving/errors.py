"""Why an application cannot be served: always something that whoever started it can change."""


class ServingError(Exception):
    """The application cannot be served."""


class CannotListenError(ServingError):
    """An address cannot be listened on."""


class LifespanError(ServingError):
    """The application failed to start, or to stop, in its ASGI lifespan."""
