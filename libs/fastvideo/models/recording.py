"""Forwards that are recorded once and replayed without the interpreter, bit for bit.

A small forward spends a third of its time in Python, and holds the interpreter's lock for it.
What a module does for one form of arguments is recorded as a graph of the same operations, and
the graph is run instead of the module: nothing is fused, folded or reordered. Whether a replay
gives the module's bits is measured, for each form of arguments, before the first one is used.
"""

import copy
import logging
import threading
import time
import warnings
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import nn

_LOG: Final = logging.getLogger(__name__)

SECONDS_MAX: Final = 0.2
"""What takes longer on its thread is not recorded: Python's part of it is small, trying is not."""

# A form that is met once is not worth a recording.
_SEEN_MIN: Final = 2
_FORMS_MAX: Final = 256
_RECORDINGS_MAX: Final = 8
# A graph is prepared in its first runs, and not changed from then on.
_TRIED: Final = 3

Form = tuple[tuple[torch.Size, torch.dtype, torch.device], ...]
"""Shape, dtype and device of each argument."""

Forward = Callable[..., torch.Tensor]

# Changes that nobody has asked for.
_CHANGES_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class RecordingChange:
    """What became of a form of arguments, or of all recordings."""

    # "captured", "replayed" by an earlier recording, "refused" or "dropped".
    change: str
    # Shapes of the arguments, such as "1x16x3x6x6,1x128".
    shapes: str = ""
    reason: str = ""


class Recorded:
    """A module's forward from tensors to one tensor, replayed where that is exact.

    The module itself is run while gradients are wanted, while somebody watches its parts by
    hooks, for forms of arguments whose replay differs, and where it takes long. Recordings are
    dropped when a part or a parameter was replaced or changed; they hold the parameters
    themselves, not copies.
    """

    def __init__(self, module: nn.Module, seconds_max: float = SECONDS_MAX) -> None:
        self._module = module
        self._seconds_max = seconds_max
        self._stopped = False
        self._watch = ModuleWatch(module)
        self._recordings: list[Forward] = []
        # What replays a form; None when the module itself is run. Latest used last.
        self._forms: OrderedDict[Form, Forward | None] = OrderedDict()
        self._seen: OrderedDict[Form, int] = OrderedDict()
        self._changes: deque[RecordingChange] = deque(maxlen=_CHANGES_MAX)
        self._lock = threading.Lock()

    def stop(self) -> None:
        """Run the module itself from now on: what runs a few times is not worth a recording."""
        self._stopped = True

    def __deepcopy__(self, memo: dict[int, Any]) -> "Recorded":
        # A copy has parameters of its own; what was recorded is of these.
        return Recorded(copy.deepcopy(self._module, memo), self._seconds_max)

    @property
    def stamp(self) -> object:
        """An object that is another one once the module's parts or weights have changed."""
        if self._watch.is_changed():
            with self._lock:
                self._watch = ModuleWatch(self._module)
                if self._recordings:
                    self._tell("dropped", (), "a part or a weight has changed")
                self._recordings.clear()
                self._forms.clear()
                self._seen.clear()
        return self._watch

    def take_changes(self) -> tuple[RecordingChange, ...]:
        """What became of the recordings since this was asked last, the latest if it is much."""
        taken: list[RecordingChange] = []
        while self._changes:
            taken.append(self._changes.popleft())
        return tuple(taken)

    def __call__(self, *tensors: torch.Tensor) -> torch.Tensor:
        """The module's output; under `torch.no_grad` a replay may give it."""
        if self._stopped or torch.is_grad_enabled() or self._watch.is_watched():
            return self._run(*tensors)
        # Drops what is out of date.
        _ = self.stamp
        form = tuple((tensor.shape, tensor.dtype, tensor.device) for tensor in tensors)
        if form in self._forms:
            replay = self._forms[form]
            return self._run(*tensors) if replay is None else replay(*tensors)
        if not self._is_worth_it(form):
            return self._run(*tensors)
        with self._lock:
            return self._try(form, tensors)

    def _run(self, *tensors: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self._module(*tensors)
        return output

    def _is_worth_it(self, form: Form) -> bool:
        seen = self._seen.pop(form, 0) + 1
        self._seen[form] = seen
        while len(self._seen) > _FORMS_MAX:
            self._seen.popitem(last=False)
        return seen >= _SEEN_MIN

    def _try(self, form: Form, tensors: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """The module's output, and from now on a replay of the form that gives it too."""
        started_s = time.thread_time()
        output = self._run(*tensors)
        long = time.thread_time() - started_s > self._seconds_max
        self._forms[form] = None if long else self._replay_of(tensors, output)
        if long:
            self._tell("refused", tensors, f"it takes more than {self._seconds_max:g} s")
        while len(self._forms) > _FORMS_MAX:
            self._forms.popitem(last=False)
        return output

    def _replay_of(self, tensors: tuple[torch.Tensor, ...], wanted: torch.Tensor) -> Forward | None:
        """A recording that gives an output, or None when there is none."""
        for made in self._recordings:
            if _replays(made, tensors, wanted):
                self._tell("replayed", tensors)
                return made
        if len(self._recordings) < _RECORDINGS_MAX:
            made = _record(self._module, tensors)
            if _replays(made, tensors, wanted):
                self._recordings.append(made)
                self._tell("captured", tensors)
                return made
        _LOG.info("no exact replay of %s", type(self._module).__name__)
        self._tell("refused", tensors, "no replay gives the same bits")
        return None

    def _tell(self, change: str, tensors: tuple[torch.Tensor, ...], reason: str = "") -> None:
        shapes = ",".join("x".join(map(str, tensor.shape)) for tensor in tensors)
        self._changes.append(RecordingChange(change, shapes, reason))


def stop_recordings(components: Iterable[object]) -> None:
    """Let every recorded forward of components run as it is from now on."""
    for component in components:
        for part in getattr(component, "__dict__", {}).values():
            if isinstance(part, Recorded):
                part.stop()


class ModuleWatch:
    """Whether the parts of a module are those of some moment, unchanged."""

    def __init__(self, module: nn.Module) -> None:
        self._hooks: list[Any] = []
        self._parts: list[tuple[dict[str, Any], str, Any]] = []
        self._versions: list[tuple[dict[str, Any], str, torch.Tensor, int]] = []
        for part in module.modules():
            self._hooks += [part._forward_hooks, part._forward_pre_hooks]
            self._parts += [(part._modules, name, child) for name, child in part._modules.items()]
            for table in (part._parameters, part._buffers):
                self._versions += [
                    (table, name, tensor, tensor._version) for name, tensor in _named(table)
                ]

    def is_watched(self) -> bool:
        """Whether a part has a hook of its own."""
        return any(self._hooks)

    def is_changed(self) -> bool:
        """Whether a part or tensor was replaced, or a tensor written to."""
        return any(table.get(name) is not part for table, name, part in self._parts) or any(
            table.get(name) is not tensor or tensor._version != version
            for table, name, tensor, version in self._versions
        )


def _named(table: dict[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
    return ((name, tensor) for name, tensor in table.items() if tensor is not None)


def _record(module: nn.Module, tensors: tuple[torch.Tensor, ...]) -> Forward:
    with warnings.catch_warnings():
        # `torch.export` is named as its successor; run by the interpreter it is slower than the
        # module itself. Sizes that become constants of the graph are met by the comparison.
        warnings.simplefilter("ignore")
        made: Forward = torch.jit.trace(module, tensors, check_trace=False)  # type: ignore[no-untyped-call]
    return made


def _replays(made: Forward, tensors: tuple[torch.Tensor, ...], wanted: torch.Tensor) -> bool:
    """Whether a recording gives the bits that are wanted, time after time."""
    try:
        outputs = [made(*tensors) for _ in range(_TRIED)]
    except RuntimeError:
        # It was recorded for arguments of other forms.
        return False
    return all(torch.equal(output, wanted) for output in outputs)
