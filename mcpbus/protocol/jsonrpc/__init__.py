"""JSON-RPC 2.0 messages: one pass in, one line out.

A message is decoded once: method, id and kind are typed, `params` and `result` stay raw until their type is known.
"""

from mcpbus.protocol.jsonrpc.codec import (
    MAX_BATCH,
    decode,
    decode_batch,
    encode_error,
    encode_id,
    encode_notification,
    encode_request,
    encode_result,
    encode_value,
    single_line,
)
from mcpbus.protocol.jsonrpc.invalid import is_batch
from mcpbus.protocol.jsonrpc.messages import (
    LONGEST_ID,
    NO_PARAMS,
    BoundedId,
    ErrorObject,
    JsonRpcNotification,
    JsonRpcRequest,
    JsonRpcResponse,
    RequestId,
    Undecodable,
)

__all__ = [
    "LONGEST_ID",
    "MAX_BATCH",
    "NO_PARAMS",
    "BoundedId",
    "ErrorObject",
    "JsonRpcNotification",
    "JsonRpcRequest",
    "JsonRpcResponse",
    "RequestId",
    "Undecodable",
    "decode",
    "decode_batch",
    "encode_error",
    "encode_id",
    "encode_notification",
    "encode_request",
    "encode_result",
    "encode_value",
    "is_batch",
    "single_line",
]
