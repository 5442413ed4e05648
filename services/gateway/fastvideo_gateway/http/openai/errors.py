"""Typed errors in OpenAI's shape: {"error": {message, type, param, code}}."""

import re
from collections.abc import Mapping
from typing import Final

from starlette.responses import Response

from fastvideo.errors import FastVideoError
from fastvideo_gateway.http.answers import error_record, json_answer, status_of
from fastvideo_gateway.http.openai.objects import Failed, Failure
from fastvideo_gateway.http.views import ErrorRecord

PREFIX: Final = "/v1/"

# What the gateway calls a field, and what this API calls it.
_PARAMETERS: Final[Mapping[str, str]] = {
    "model_id": "model",
    "program_id": "model",
    "sampling.width": "size",
    "sampling.height": "size",
    "sampling.steps": "num_inference_steps",
    "sampling.num_frames": "num_frames",
    "sampling.fps": "fps",
    "sampling.seed": "seed",
    "sampling.guidance_scale": "guidance_scale",
    "sampling.flow_shift": "flow_shift",
    "inputs[0].text.text": "prompt",
    "inputs[1].text.text": "negative_prompt",
    # What a program lacks of its inputs is an image; without a prompt nothing gets so far.
    "inputs": "input_reference",
    "inputs[1].image.role": "input_reference",
    "inputs[2].image.role": "input_reference",
    "inputs[1].image.artifact_id": "input_reference",
    "inputs[2].image.artifact_id": "input_reference",
    "outputs.ttl_s": "expires_after.seconds",
    "scope.target_id": "video_id",
    "request_id": "video_id",
    "chunk": "input_reference",
    "idempotency_key": "Idempotency-Key",
}
_MESSAGES: Final[Mapping[str, str]] = {
    "IMAGE_REQUIRED": "input_reference is missing; what was asked for starts from an image",
}
# Of what has no parameter of its own: the part of one.
_PARTS: Final[Mapping[str, str]] = {
    "sampling.width": "the width of size",
    "sampling.height": "the height of size",
}
_VIDEO: Final = "video_id"
_TYPES: Final[Mapping[int, str]] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}


def openai_answer(record: ErrorRecord, status: int) -> Response:
    """The answer of an error, from the record that other paths answer with."""
    return json_answer(_failed(record, status), status)


def openai_failed(error: FastVideoError) -> Failed:
    """An error in the middle of a stream, which has no status any more."""
    return _failed(error_record(error), status_of(error))


def _failed(record: ErrorRecord, status: int) -> Failed:
    field, message = record.field, _MESSAGES.get(record.reason, record.message)
    param = _PARAMETERS.get(field, field)
    if param != field:
        message = message.replace(field, _PARTS.get(field, param))
    if param == _VIDEO:
        message = re.sub(r"\brequest\b", "video", message)
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    failure = Failure(message=message, type=kind, param=param or None, code=record.reason.lower())
    return Failed(error=failure)
