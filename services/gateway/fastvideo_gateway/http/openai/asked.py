"""What a caller asks for in the words of OpenAI's API, as a submit message."""

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field
from python_multipart.multipart import parse_options_header
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request

from fastvideo.api.common.v1 import request_pb2
from fastvideo.api.gateway.v1 import gateway_pb2
from fastvideo.artifacts.input_files import UPLOAD_BYTES_MAX
from fastvideo.deployment.catalog import CatalogEntry
from fastvideo.errors import InvalidField
from fastvideo.requests.durations import frames_of
from fastvideo.requests.inputs import IMAGE, IMAGE_TO_VIDEO, NEGATIVE_PROMPT, PROMPT
from fastvideo.requests.lifetimes import TTL_S_MAX
from fastvideo_gateway.http.openai.choosing import Chosen
from fastvideo_gateway.http.openai.numbers import Number, Seed, Whole, whole, whole_schema
from fastvideo_gateway.http.queries import JSON_TYPE, Given, read_body, validated

FORM_TYPE: Final = "multipart/form-data"
BODY_BYTES_MAX: Final = 24 * 1024 * 1024
"""Room for an image of the largest size, in base64 too."""

IMAGES_MAX: Final = 10
FIELDS_MAX: Final = 64
"""Fields of a form."""

_SIZE: Final = re.compile(r"([1-9][0-9]{0,5})[xX]([1-9][0-9]{0,5})")
_DATA_URL: Final = re.compile(r"data:image/[a-z]+;base64,", re.IGNORECASE)

# How a form names the parts of `expires_after`.
_EXPIRY_FIELDS: Final[Mapping[str, str]] = {
    part: f"expires_after[{part}]" for part in ("anchor", "seconds")
}

Count = Annotated[
    int, BeforeValidator(whole), Field(ge=1, le=IMAGES_MAX), whole_schema(1, IMAGES_MAX)
]
Lifetime = Annotated[
    int, BeforeValidator(whole), Field(ge=1, le=TTL_S_MAX), whole_schema(1, TTL_S_MAX)
]
Size = Annotated[str, Field(json_schema_extra={"pattern": f"^{_SIZE.pattern}$"})]


class ImageReference(Given):
    """An image that the video starts from: a data URL, or an artifact that was uploaded."""

    image_url: str | None = None
    """data:image/...;base64,... of a PNG, JPEG or WebP."""
    file_id: str | None = None
    """The id of an artifact."""


class ExpiresAfter(Given):
    """How long the files are kept."""

    anchor: Literal["completed_at"] = "completed_at"
    """From when on: the end of the request, however it ended."""
    seconds: Lifetime
    """At most what is kept by default, where that is not for ever."""


class VideoAsked(Given):
    """The body of POST /v1/videos. What is left out takes the card's default."""

    prompt: str
    model: str = ""
    """The id of a model; may be left out where only one is served."""
    seconds: Number | None = None
    """Length of the video; the nearest that the model can make."""
    size: Size | None = None
    """WIDTHxHEIGHT in pixels."""
    input_reference: ImageReference | None = None
    """In a form it is the file itself."""
    negative_prompt: str | None = None
    num_inference_steps: Whole | None = None
    guidance_scale: Number | None = None
    flow_shift: Number | None = None
    seed: Seed | None = None
    fps: Whole | None = None
    num_frames: Whole | None = None
    expires_after: ExpiresAfter | None = None
    """How long its files are kept; left out for the default."""
    session_id: str = ""
    """The session that it is a part of."""


class ImagesAsked(Given):
    """The body of POST /v1/images/generations. What is left out takes the card's default."""

    prompt: str
    model: str = ""
    """The id of a model; may be left out where only one is served."""
    n: Count = 1
    """How many images, each of a seed of its own."""
    size: Size | None = None
    """WIDTHxHEIGHT in pixels."""
    response_format: Literal["url", "b64_json"] = "url"
    negative_prompt: str | None = None
    num_inference_steps: Whole | None = None
    guidance_scale: Number | None = None
    flow_shift: Number | None = None
    seed: Seed | None = None
    """Of the first image; the next ones take the numbers behind it."""
    expires_after: ExpiresAfter | None = None
    """How long the images are kept; left out for the default."""
    user: str = ""
    """Whom it is for; accepted and not kept."""


class Asked:
    """A body that was read: its fields, and the image beside them."""

    def __init__(self, video: VideoAsked, image: bytes | None) -> None:
        self.video = video
        self.image = image

    @classmethod
    async def read(cls, request: Request) -> "Asked":
        """Read JSON or a form. Raises InvalidField naming what is wrong."""
        content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if content_type == FORM_TYPE:
            # Whole first: in the middle of a form, a caller that leaves would leave files open.
            _require_end(request.headers["content-type"], await request.body())
            try:
                async with request.form(max_files=1, max_fields=FIELDS_MAX) as form:
                    return await cls._of_form(form)
            except HTTPException as error:
                raise InvalidField("body", "no form", f"a form; {error.detail}") from error
        if content_type != JSON_TYPE:
            allowed = f"{JSON_TYPE} or {FORM_TYPE}"
            raise InvalidField("Content-Type", content_type, allowed)
        video = await read_body(request, VideoAsked)
        return cls(video, _inline(video.input_reference))

    @classmethod
    async def _of_form(cls, form: FormData) -> "Asked":
        fields: dict[str, Any] = {}
        image: bytes | None = None
        for name, value in form.multi_items():
            if isinstance(value, UploadFile):
                if name != "input_reference":
                    raise InvalidField(name, "a file", "text; the file is input_reference")
                image = await value.read(UPLOAD_BYTES_MAX + 1)
            elif name in fields:
                raise InvalidField(name, "given twice", "one value")
            else:
                fields[name] = value
        expiry = {part: fields.pop(name) for part, name in _EXPIRY_FIELDS.items() if name in fields}
        if expiry:
            fields["expires_after"] = expiry
        return cls(validated(fields, VideoAsked), image)


def submit_message(
    asked: Asked, chosen: Chosen, image_id: str, key: str
) -> gateway_pb2.SubmitRequestRequest:
    """The submit of what was asked; the gateway checks it as it checks every submit.

    Raises InvalidField for a size that is none, and for a length that is given twice.
    """
    video, entry = asked.video, chosen.entry
    sampling = request_pb2.SamplingOverrides()
    given: Mapping[str, float | None] = {
        "steps": video.num_inference_steps,
        "guidance_scale": video.guidance_scale,
        "flow_shift": video.flow_shift,
        "seed": video.seed,
        "fps": video.fps,
        "num_frames": _frames(video, entry),
        **_size(video.size),
    }
    for name, value in given.items():
        if value is not None:
            setattr(sampling, name, value)
    texts = {PROMPT: video.prompt, NEGATIVE_PROMPT: video.negative_prompt}
    inputs = [
        request_pb2.InputPart(text=request_pb2.TextPart(role=role, text=text))
        for role, text in texts.items()
        if text is not None
    ]
    if image_id:
        part = request_pb2.ImagePart(role=IMAGE, artifact_id=image_id)
        inputs.append(request_pb2.InputPart(image=part))
    return gateway_pb2.SubmitRequestRequest(
        idempotency_key=key,
        kind=request_pb2.REQUEST_KIND_GENERATION,
        model_id=entry.card.model_id,
        program_id=chosen.program_id or (IMAGE_TO_VIDEO if image_id else ""),
        inputs=inputs,
        sampling=sampling,
        session_id=video.session_id,
        outputs=request_pb2.OutputSpec(
            video=True, sheet=True, image=True, ttl_s=_ttl_s(video.expires_after)
        ),
    )


def image_message(
    asked: ImagesAsked, chosen: Chosen, seed: int, key: str
) -> gateway_pb2.SubmitRequestRequest:
    """The submit of one image: a video of a single frame. Raises InvalidField for a size."""
    video = VideoAsked(
        prompt=asked.prompt,
        size=asked.size,
        negative_prompt=asked.negative_prompt,
        num_inference_steps=asked.num_inference_steps,
        guidance_scale=asked.guidance_scale,
        flow_shift=asked.flow_shift,
        seed=seed,
        num_frames=1,
        expires_after=asked.expires_after,
    )
    message = submit_message(Asked(video, None), chosen, "", key)
    message.outputs.CopyFrom(request_pb2.OutputSpec(image=True, ttl_s=_ttl_s(asked.expires_after)))
    return message


def _ttl_s(expires_after: ExpiresAfter | None) -> int | None:
    return None if expires_after is None else expires_after.seconds


def _frames(video: VideoAsked, entry: CatalogEntry) -> int | None:
    if video.seconds is None:
        return video.num_frames
    if video.num_frames is not None:
        raise InvalidField("seconds", video.seconds, "left out when num_frames is given")
    return frames_of(entry.card, "seconds", video.seconds, video.fps)


def _size(size: str | None) -> dict[str, int]:
    if size is None:
        return {}
    found = _SIZE.fullmatch(size)
    if found is None:
        raise InvalidField("size", size, "WIDTHxHEIGHT in pixels, such as 48x48")
    return {"width": int(found[1]), "height": int(found[2])}


def _require_end(content_type: str, body: bytes) -> None:
    """A form that was cut off would pass for one without its last field."""
    _, options = parse_options_header(content_type)
    if b"--" + options.get(b"boundary", b"") + b"--" not in body:
        raise InvalidField("body", "cut off", "a form that ends with its boundary")


def _inline(reference: ImageReference | None) -> bytes | None:
    """The image of a data URL."""
    if reference is None or reference.image_url is None:
        if reference is not None and reference.file_id is None:
            raise InvalidField("input_reference", {}, "image_url or file_id")
        return None
    field = "input_reference.image_url"
    found = _DATA_URL.match(reference.image_url)
    if found is None or reference.file_id is not None:
        raise InvalidField(field, reference.image_url[:40], "data:image/...;base64,... alone")
    try:
        return base64.b64decode(reference.image_url[found.end() :], validate=True)
    except binascii.Error as error:
        raise InvalidField(field, "not base64", "data:image/...;base64,...") from error
