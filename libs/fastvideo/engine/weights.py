"""Whether resident weights may serve a request that is pinned to a version."""

from fastvideo.engine.residents import Residents
from fastvideo.errors import StaleWeights
from fastvideo.requests.types import RequestSpec


def check_weights(
    residents: Residents, request: RequestSpec, model_instance_id: str, loop_id: str
) -> None:
    """Raise StaleWeights when the request asks for other weights.

    To be asked before a loop is made and before each of its units: a model may be loaded anew
    in between.
    """
    required = request.required_weights_version
    if not required:
        return
    _, instance = residents.kernel(model_instance_id, loop_id)
    found = "" if instance is None else instance.weights_version
    if found != required:
        raise StaleWeights(
            f"{request.request_id} must run on weights {required}; these are {found or 'none'}",
            subject="required_weights_version",
            attributes={"required": required, "found": found},
        )
