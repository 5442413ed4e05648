"""Which weights the log knows to be where, and what an attached worker changes of that.

Pure: it is folded from the events that it led to, and says what is new. An instance's id follows
from its weights, so a model that a worker loaded with other weights is another instance; when it
takes the place of the one that was there, the change says from which weights.

A worker that is lost changes nothing: it may come back with what it had.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from fastvideo.scheduling.events import WorkerAttached
from fastvideo.scheduling.traces import WeightsChanged
from fastvideo.scheduling.work import ModelState

STREAM_PREFIX: Final = "model-"


def model_stream(model_id: str) -> str:
    """The stream of what happens to a model's weights, wherever it runs."""
    return f"{STREAM_PREFIX}{model_id}"


@dataclass(frozen=True, slots=True)
class _Held:
    """What an instance holds."""

    model_id: str
    card_digest: str
    weights_version: str
    adapter_versions: Mapping[str, str]


@dataclass(slots=True)
class KnownWeights:
    """The instances of all workers, as the log has them."""

    # By worker, by instance.
    _held: dict[str, dict[str, _Held]] = field(default_factory=dict)

    def evolve(self, event: WeightsChanged) -> None:
        """Take in a change that the log has."""
        instances = self._held.setdefault(event.worker_id, {})
        former = instances.pop(event.model_instance_id, None)
        if former is None and event.from_version:
            # It took the place of an instance with another id.
            replaced = _of_version(instances, event.model_id, event.from_version)
            if replaced is not None:
                del instances[replaced]
        if event.to_version:
            instances[event.model_instance_id] = _Held(
                event.model_id, event.card_digest, event.to_version, dict(event.adapter_versions)
            )
        if not instances:
            del self._held[event.worker_id]

    def changes(self, attached: WorkerAttached) -> tuple[WeightsChanged, ...]:
        """What the log is to be told of a worker's models: replaced and changed, new, gone."""
        left = dict(self._held.get(attached.worker_id, {}))
        unknown: list[ModelState] = []
        changes: list[WeightsChanged] = []
        for instance in attached.instances:
            former = left.pop(instance.model_instance_id, None)
            if former is None:
                unknown.append(instance)
            elif former != _held_by(instance):
                changes.append(_change(attached, instance, former.weights_version))
        for instance in unknown:
            of_model = [name for name, held in left.items() if held.model_id == instance.model_id]
            former = left.pop(of_model[0]) if len(of_model) == 1 else None
            changes.append(_change(attached, instance, former.weights_version if former else ""))
        gone = sorted(left.items(), key=_name)
        return (*changes, *(_gone(attached, name, held) for name, held in gone))


def _name(item: tuple[str, _Held]) -> str:
    return item[0]


def _held_by(instance: ModelState) -> _Held:
    return _Held(
        instance.model_id,
        instance.card_digest,
        instance.weights_version,
        dict(instance.adapter_versions),
    )


def _of_version(instances: Mapping[str, _Held], model_id: str, version: str) -> str | None:
    for name, held in instances.items():
        if (held.model_id, held.weights_version) == (model_id, version):
            return name
    return None


def _change(attached: WorkerAttached, instance: ModelState, former: str) -> WeightsChanged:
    return WeightsChanged(
        worker_id=attached.worker_id,
        model_instance_id=instance.model_instance_id,
        model_id=instance.model_id,
        card_digest=instance.card_digest,
        from_version=former,
        to_version=instance.weights_version,
        adapter_versions=instance.adapter_versions,
    )


def _gone(attached: WorkerAttached, instance_id: str, held: _Held) -> WeightsChanged:
    return WeightsChanged(
        worker_id=attached.worker_id,
        model_instance_id=instance_id,
        model_id=held.model_id,
        card_digest=held.card_digest,
        from_version=held.weights_version,
        adapter_versions=held.adapter_versions,
    )
