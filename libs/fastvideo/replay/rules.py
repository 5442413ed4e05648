"""Under which rules the scheduler decided, against those that a replay has here."""

from collections.abc import Mapping

from fastvideo.replay.types import Promise
from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling.events import LeaderElected
from fastvideo.version import program_version


class Rules:
    """Gathers what differs: the program, the policy, the cards of the models in use."""

    def __init__(self, cards: Mapping[str, str]) -> None:
        self._installed = cards
        self._cards: Mapping[str, str] = {}
        self._differences: dict[str, str] = {}
        self._unsaid = False

    def elected(self, event: LeaderElected) -> None:
        """A leader says under which rules it decides."""
        self._cards = event.cards
        self._unsaid = self._unsaid or not event.policy
        here = program_version()
        if event.program_version and event.program_version != here:
            self._differences["program_version"] = f"{event.program_version} -> {here}"

    def submitted(self, spec: RequestSpec) -> None:
        """A request came that its card tells how to run."""
        then = self._cards.get(spec.model_id, spec.card_digest)
        here = self._installed.get(spec.model_id, "")
        if then and then != here:
            name = f"card {spec.model_id}"
            self._differences[name] = f"{then[:12]} -> {here[:12] or 'not installed'}"

    @property
    def promise(self) -> Promise:
        """Equal decisions, where the program, the policy and the cards are as they were."""
        if self._differences:
            named = ", ".join(self._differences)
            return Promise(
                kind="none",
                reason=f"the scheduler may decide otherwise, since these differ: {named}",
                differences=dict(self._differences),
            )
        if self._unsaid:
            return Promise(
                kind="none",
                reason="a leader of then did not say under which policy it decided; "
                "the default is taken",
            )
        return Promise(
            kind="bits", reason="program, policy and cards are as they were: equal decisions"
        )
