"""Clients of gateways of real servers see what a direct connection shows, but for the differences that a table names."""

import pytest
import trio

from tests.gateways import plans, seen
from tests.gateways.differences import TABLE, compare

pytestmark = [
    pytest.mark.xdist_group("gateways"),  # all is looked at once
    # The SDK marks what 2026-07-28 has dropped as deprecated, and leaves the generators of streams that it abandons to
    # the garbage collector, which trio reports.
    pytest.mark.filterwarnings(
        "ignore::mcp.shared.exceptions.MCPDeprecationWarning",
        "ignore:Async generator 'http(x|core)2:ResourceWarning",
    ),
]
SERVERS = ("everything", "files", "official", "remote", "replicas", "floods")
CASES = [
    (gateway, server, client)
    for gateway, servers in (("file", SERVERS), ("single", seen.SINGLE))
    for server in servers
    for client in seen.CLIENTS
]


@pytest.fixture(scope="module")
def all_seen(tmp_path_factory):
    return trio.run(seen.look, tmp_path_factory.mktemp("gateways"))


@pytest.mark.parametrize(("gateway", "server", "client"), CASES)
def test_a_client_sees_what_a_direct_connection_shows(gateway, server, client, all_seen):
    direct = all_seen.direct[client][server]
    through = {"file": all_seen.file, "single": all_seen.single}[gateway][client][server]
    if gateway == "file":  # that is the gateway's own
        direct = {key: value for key, value in direct.items() if key != plans.ABOUT["key"]}
    wrong = compare(TABLE, server, client, gateway, direct=direct, through=through)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("client", "server"), [(client, server) for client in seen.CLIENTS for server in SERVERS]
)
def test_a_direct_connection_shows_all_that_the_plan_is_about(client, server, all_seen):
    found = all_seen.direct[client][server]
    assert not [key for key, value in found.items() if "late" in value]
    failed = {key for key, value in found.items() if "error" in value}
    missing = {"prompts", "resources", "templates"} if server in {"files", "floods"} else set()
    refused = {"call refuse", "prompt no such prompt", "prompt without what it needs", "level"}
    assert failed - missing <= refused | {key for key in found if key.endswith("nowhere")}
    if "call form" in found:
        assert found["call form"]["asked"][0]["method"] == "elicitation/create"
        assert found["call model"]["asked"][0]["method"] == "sampling/createMessage"
    if "call hang" in found:
        assert found["call hang"]["progress"] == [[1, 2, "hanging"]]
        assert found["call was cancelled"]["result"]["content"][0]["text"] == "true"
        assert len(found["call forecast"]["logs"]) == 2


def test_each_row_is_about_something_that_is_looked_at():
    idle = [
        row
        for row in TABLE
        if not any(row.is_for(server, client, gateway) for gateway, server, client in CASES)
    ]
    assert idle == []
