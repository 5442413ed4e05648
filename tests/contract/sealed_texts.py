"""Events with texts of tenants, for the contract of sealing."""

from fastvideo.api.events.v1 import events_pb2
from fastvideo.events.records import NewEvent
from fastvideo.ids import new_id


def accepted(tenant_id: str, *texts: str) -> NewEvent:
    """A RequestAccepted whose inputs are these texts, an image between them."""
    message = events_pb2.RequestAccepted()
    message.spec.tenant_id = tenant_id
    message.spec.model_id = "moving-digits"
    for text in texts:
        message.spec.inputs.add().text.text = text
        message.spec.inputs.add().image.artifact_id = "art_1"
    return _event("RequestAccepted", tenant_id, message.SerializeToString())


def remembered(tenant_id: str, prompt: str) -> NewEvent:
    """A SessionUpdated that remembers a prompt."""
    message = events_pb2.SessionUpdated(session_id="ses_1", change="request began")
    message.remembered.prompt = prompt
    return _event("SessionUpdated", tenant_id, message.SerializeToString())


def pushed(tenant_id: str, text: str) -> NewEvent:
    """A SessionTextPushed."""
    message = events_pb2.SessionTextPushed(session_id="ses_1")
    message.pushed.text = text
    message.pushed.role = "context"
    return _event("SessionTextPushed", tenant_id, message.SerializeToString())


def erased(tenant_id: str) -> NewEvent:
    """A TenantErased."""
    message = events_pb2.TenantErased(tenant_id=tenant_id)
    return _event("TenantErased", tenant_id, message.SerializeToString())


def _event(type_: str, tenant_id: str, payload: bytes) -> NewEvent:
    metadata = events_pb2.EventMetadata(tenant_id=tenant_id).SerializeToString()
    return NewEvent(new_id("evt", 1), type_, 1, payload, metadata)
