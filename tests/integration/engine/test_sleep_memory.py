"""Sleep and wake of a model that is large enough to be seen in the memory of the process."""

import weakref
from dataclasses import dataclass

import psutil
import pytest
import torch
from diffusers import WanTransformer3DModel

from fastvideo.engine.instance import ModelInstance
from fastvideo.engine.residents import Residents
from fastvideo.errors import CheckpointError
from fastvideo.memory.pools import MemoryPools, MemoryTag, OutOfMemory
from fastvideo.memory.system import give_back_unused, resident_process_bytes
from fastvideo.model.specs import (
    CapabilityMatrix,
    ModelSpec,
    ParallelismContract,
    ParityContract,
)

MIB = 1 << 20
WEIGHTS_MIB = 150


@dataclass
class SeededLoader:
    """Makes a transformer of about 150 MiB from a seed, which is its weights' version."""

    seed: int = 0

    def expected_bytes(self, model_id: str, checkpoint: str) -> int:
        return 170 * MIB

    def load(self, model_id: str, checkpoint: str) -> ModelInstance:
        torch.manual_seed(self.seed)
        transformer = WanTransformer3DModel(
            num_attention_heads=8,
            attention_head_dim=64,
            in_channels=8,
            out_channels=8,
            text_dim=32,
            freq_dim=64,
            ffn_dim=2048,
            num_layers=9,
        )
        return ModelInstance(
            model_instance_id=f"mi_{self.seed}",
            card=ModelSpec(
                model_id=model_id,
                capabilities=CapabilityMatrix(),
                parallelism=ParallelismContract(),
                parity=ParityContract(),
            ),
            card_digest="0" * 64,
            components={"transformer": transformer.eval().requires_grad_(False)},
            kernels={},
            weights_version=f"seed {self.seed}",
        )


def predict(instance: ModelInstance) -> torch.Tensor:
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        velocity: torch.Tensor = instance.components["transformer"](
            hidden_states=torch.randn(1, 8, 1, 4, 4, generator=generator),
            timestep=torch.tensor([500]),
            encoder_hidden_states=torch.randn(1, 4, 32, generator=generator),
            return_dict=False,
        )[0]
    return velocity


def resident_mib() -> float:
    give_back_unused()
    rss = psutil.Process().memory_info().rss
    assert abs(rss - resident_process_bytes()) < 4 * MIB
    return rss / MIB


@pytest.fixture
def loader() -> SeededLoader:
    return SeededLoader()


@pytest.fixture
def pools() -> MemoryPools:
    return MemoryPools(dict.fromkeys(MemoryTag, 300 * MIB))


@pytest.fixture
def residents(pools: MemoryPools, loader: SeededLoader) -> Residents:
    return Residents(pools, loader)


def test_sleep_and_wake_are_seen_in_the_process_and_the_outputs_are_equal(
    residents: Residents, pools: MemoryPools
) -> None:
    instance = residents.load("seeded")
    expected = predict(instance)
    weights = pools.in_use_bytes()[MemoryTag.WEIGHTS] / MIB
    assert 0.9 * WEIGHTS_MIB < weights < 1.1 * WEIGHTS_MIB
    awake = resident_mib()

    parameter = weakref.ref(next(instance.components["transformer"].parameters()))
    assert residents.sleep() / MIB == pytest.approx(weights)
    asleep = resident_mib()
    assert parameter() is None
    assert awake - asleep > 0.9 * weights
    assert pools.in_use_bytes()[MemoryTag.WEIGHTS] == 0

    residents.wake()
    again = resident_mib()
    assert again - asleep > 0.9 * weights
    assert again - awake < 0.1 * weights
    assert torch.equal(predict(instance), expected)


def test_other_weights_come_only_when_they_are_loaded_and_then_with_their_version(
    residents: Residents, loader: SeededLoader
) -> None:
    old = residents.load("seeded")
    expected = predict(old)
    residents.sleep()
    loader.seed = 1
    with pytest.raises(CheckpointError):
        residents.wake()
    new = residents.load("seeded")
    assert residents.sleepers("seeded") == (old,)
    residents.unload(old.model_instance_id)
    assert (new.weights_version, residents.all()) == ("seed 1", (new,))
    assert not torch.equal(predict(new), expected)
    assert torch.equal(predict(new), predict(loader.load("seeded", "")))


def test_loading_what_sleeps_wakes_it(residents: Residents, pools: MemoryPools) -> None:
    instance = residents.load("seeded")
    expected, weights = predict(instance), pools.in_use_bytes()[MemoryTag.WEIGHTS]
    residents.sleep()
    assert residents.load("seeded") is instance
    assert torch.equal(predict(instance), expected)
    assert pools.in_use_bytes()[MemoryTag.WEIGHTS] == weights


def test_what_does_not_fit_is_not_even_begun(
    residents: Residents, pools: MemoryPools, loader: SeededLoader
) -> None:
    residents.load("seeded")
    before = resident_mib()
    loader.seed = 1
    with pytest.raises(OutOfMemory) as caught:
        residents.load("another")
    assert caught.value.subject == "weights"
    assert resident_mib() - before < 0.1 * WEIGHTS_MIB
    assert len(residents.all()) == 1
    # Nor does a waking model push out what took its place.
    loader.seed = 0
    residents.sleep()
    pools.resize(MemoryTag.WEIGHTS, "instance:other", 200 * MIB)
    with pytest.raises(OutOfMemory):
        residents.wake()
    pools.release("instance:other")
    residents.wake()
