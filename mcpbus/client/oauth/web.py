"""What is asked of issuers, and of servers for what they say of them, and what of the answers is looked at."""

from collections.abc import Mapping
from typing import Any, Protocol

import attrs


def succeeded(status: int) -> bool:
    """Whether a status reports success. Issuers answer 200, 201 and 204 where their RFC names only one of them."""
    return 200 <= status < 300


@attrs.frozen
class OAuthResponse:
    """What was answered.

    Attributes:
        status: The status.
        document: The JSON object; None if it is none.
        elsewhere: Where it is instead, if the answer says so.
    """

    status: int
    document: Mapping[str, Any] | None = attrs.field(default=None, repr=False)
    elsewhere: str | None = None


class OAuthHttp(Protocol):
    """Who asks; see `mcpbus.client.oauth.http_web.OAuthHttpClient`."""

    async def get(self, url: str) -> OAuthResponse:
        """Ask for a document.

        Raises:
            IssuerUnavailableError: There is no answer in time, or it is too long.
            MetadataError: It is not to be asked for.
        """

    def check_page(self, url: str) -> None:
        """Refuse a page that nobody is to be shown, as far as its address tells: the browser looks up names by itself.

        Raises:
            MetadataError: It is on this machine or in its network, and the server that names it is not.
        """

    async def post_form(
        self, url: str, form: Mapping[str, str], headers: Mapping[str, str] | None = None
    ) -> OAuthResponse:
        """Post a form, and raise what `get` does."""

    async def post_json(self, url: str, body: Mapping[str, Any]) -> OAuthResponse:
        """Post a JSON object, and raise what `get` does."""
