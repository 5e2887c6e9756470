"""Ready middleware: what many servers want around each call of a tool, prompt, resource or completion.

Each is given to a server in a list, the first outermost::

    from mcpbus.middleware import RetryMiddleware, TimingMiddleware

    server = Server("weather", middleware=[TimingMiddleware(), RetryMiddleware()])

One of one's own is an async function, or any object that is called like one; see `mcpbus.Middleware`.
"""

from mcpbus.middleware.caching import ResponseCachingMiddleware
from mcpbus.middleware.rate_limiting import RateLimitingMiddleware
from mcpbus.middleware.response_limiting import ResponseLimitingMiddleware
from mcpbus.middleware.retry import RetryMiddleware
from mcpbus.middleware.structured_logging import StructuredLoggingMiddleware
from mcpbus.middleware.timing import TimingMiddleware

__all__ = [
    "RateLimitingMiddleware",
    "ResponseCachingMiddleware",
    "ResponseLimitingMiddleware",
    "RetryMiddleware",
    "StructuredLoggingMiddleware",
    "TimingMiddleware",
]
