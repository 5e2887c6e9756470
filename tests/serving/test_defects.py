"""The eleven defects that hypercorn 0.18 has on trio, each with the tests that show that our own server has it not.

They were found by running it, and are what any server may get wrong.
"""

import ast
from pathlib import Path

import pytest

DEFECTS = {
    "1: a malformed HTTP/2 request ends the whole server": [
        "test_http2_faults.py::test_a_malformed_request_resets_its_stream_only",
        "test_http2_faults.py::test_a_request_that_is_not_for_this_server_is_told_why",
        "test_http2_faults.py::test_a_broken_connection_ends_itself_only",
        "test_acceptor.py::test_an_exception_ends_its_own_connection_only",
        "test_http2_abuse.py::test_a_flood_ends_its_connection_before_it_costs_much",
    ],
    "2: HTTP/2 backpressure does not hold": [
        "test_http2_streams.py::test_send_waits_for_a_window",
        "test_http2_memory.py::test_what_waits_for_windows_is_what_was_said_last",
        "test_http2_memory.py::test_a_stalled_stream_costs_its_outbox_and_no_more",
        "test_http2_abuse.py::test_a_window_that_is_opened_byte_by_byte_is_abuse",
    ],
    "3: send has no deadline, and a client that stops reading holds the shutdown": [
        "test_write_deadline.py::test_a_client_that_accepts_nothing_is_cut_off",
        "test_write_deadline.py::test_a_stalled_write_does_not_delay_the_shutdown",
        "test_write_deadline.py::test_a_stalled_write_does_not_delay_a_cancellation",
        "test_tls.py::test_a_client_that_stalls_over_tls_is_cut_off",
        "test_http2_streams.py::test_a_stream_without_a_window_is_reset_after_the_write_deadline",
    ],
    "4: send after a disconnect says nothing": [
        "test_http2_streams.py::test_a_reset_by_the_client_tells_the_application",
        "test_http2_faults.py::test_an_application_whose_request_turns_out_malformed_is_told",
        "test_asgi_http1.py::test_a_client_that_leaves_does_not_take_its_request_with_it",
    ],
    "5: the end of an HTTP/2 connection does not wake a blocked send": [
        "test_http2_streams.py::test_the_end_of_the_connection_wakes_a_blocked_send",
    ],
    "6: an application that raises midway leaves its HTTP/2 stream open": [
        "test_http2_streams.py::test_a_response_that_is_cut_short_resets_its_stream",
        "test_acceptor.py::test_an_application_that_raises_halfway_leaves_a_cut_response",
    ],
    "7: past keep_alive_max_requests, HTTP/2 streams go silently dead": [
        "test_http2_streams.py::test_a_connection_never_goes_dead",
        "test_http2_connection.py::test_streams_that_have_ended_are_forgotten",
    ],
    "8: a request body that is not read wedges the HTTP/2 connection": [
        "test_bodies.py::test_an_unread_body_fills_only_its_own_window",
        "test_bodies.py::test_a_body_beyond_the_cap_resets_its_http2_stream_only",
        "test_bodies.py::test_an_early_answer_on_http2_ends_after_the_body",
    ],
    "9: more than h2_max_concurrent_streams ends the connection": [
        "test_http2_limits.py::test_streams_beyond_the_limit_are_refused_and_those_within_are_served",
        "test_http2_limits.py::test_as_many_streams_as_may_be_are_all_served_again_and_again",
        "test_http2_limits.py::test_an_application_that_does_not_leave_counts_on",
    ],
    "10: streaming applications get no notice of a shutdown": [
        "test_shutdown.py::test_a_stream_says_its_last_words",
        "test_shutdown.py::test_what_does_not_end_is_cancelled_at_the_deadline",
        "test_http2_streams.py::test_a_shutdown_lets_a_response_end",
        "test_http2_limits.py::test_a_request_during_the_drain_is_refused_so_that_it_can_be_repeated_elsewhere",
    ],
    "11: read_timeout ends quiet streams": [
        "test_shutdown.py::test_a_quiet_stream_outlives_idle_connections",
    ],
}


@pytest.mark.parametrize("tests", DEFECTS.values(), ids=DEFECTS.keys())
def test_each_defect_has_its_tests(tests):
    for test in tests:
        name, _, function = test.partition("::")
        tree = ast.parse(Path(__file__).with_name(name).read_text())
        assert function in {
            node.name for node in tree.body if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef)
        }
