"""A small real upstream object of every component kind, and what it gives for one input."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import diffusers
import torch
import transformers
from peft import LoraConfig
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from fastvideo.model.manifest import build_manifest, write_manifest
from fastvideo.model.specs import ComponentKind, ComponentSpec, PrecisionPolicy
from fastvideo.models.loading import LowRankAdapter

_SEED = 11
_TEXT = {
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "pad_token_id": 0,
}
_VISION = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 16,
    "patch_size": 8,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One component: how it is made, and how it is asked for an output."""

    kind: ComponentKind
    load_id: str
    make: Callable[[], Any]
    # What the loaded object gives, as values that compare equal only when all bits do.
    outputs: Callable[[Any], list[Any]]

    @property
    def spec(self) -> ComponentSpec:
        """The component as a card declares it."""
        return ComponentSpec(
            component_id=str(self.kind),
            kind=self.kind,
            load_id=self.load_id,
            subfolder=str(self.kind),
            precision_policy=PrecisionPolicy(param_dtype="float32", compute_dtype="float32"),
        )


def wan_transformer() -> Any:
    """A transformer of two blocks."""
    return diffusers.WanTransformer3DModel(
        num_attention_heads=2,
        attention_head_dim=12,
        in_channels=4,
        out_channels=4,
        text_dim=16,
        freq_dim=32,
        ffn_dim=32,
        num_layers=2,
    )


def adapted_transformer() -> Any:
    """The transformer of `wan_transformer` with an adapter that changes its outputs."""
    module = seeded(wan_transformer)
    module.add_adapter(LoraConfig(r=2, lora_alpha=3, target_modules=["to_q", "to_v"]), "adapter")
    for name, parameter in module.named_parameters():
        if ".lora_B." in name:
            torch.nn.init.normal_(parameter)
    return module


def seeded(make: Callable[[], Any]) -> Any:
    """What `make` makes of the same random numbers each time, in eval mode."""
    with torch.random.fork_rng():
        torch.manual_seed(_SEED)
        made = make()
        return made.eval() if isinstance(made, torch.nn.Module) else made


def save(folder: Path, cases: list[Case]) -> Path:
    """A checkpoint with a component of each case and a manifest."""
    for case in cases:
        made, target = seeded(case.make), folder / str(case.kind)
        if case.kind is ComponentKind.ADAPTER:
            made.save_lora_adapter(target, adapter_name="adapter")
        else:
            made.save_pretrained(target)
    write_manifest(folder, build_manifest(folder))
    return folder


def noise(*shape: int) -> torch.Tensor:
    """The same random numbers each time."""
    return torch.randn(shape, generator=torch.Generator("cpu").manual_seed(_SEED))


def velocity(module: Any) -> list[Any]:
    """What a transformer of `wan_transformer`'s form predicts."""
    with torch.no_grad():
        return list(
            module(noise(2, 4, 1, 4, 4), torch.tensor([3, 500]), noise(2, 5, 16), return_dict=False)
        )


def _called(**inputs: Any) -> Callable[[Any], list[Any]]:
    """The first output of a call with these inputs."""

    def outputs(module: Any) -> list[Any]:
        with torch.no_grad():
            return [module(**inputs)[0]]

    return outputs


def _vae() -> Any:
    return diffusers.AutoencoderKLWan(
        base_dim=8, z_dim=4, dim_mult=[1, 2], num_res_blocks=1, temperal_downsample=[True]
    )


def _decoded(module: Any) -> list[Any]:
    with torch.no_grad():
        latents = module.encode(noise(1, 3, 5, 16, 16)).latent_dist.mode()
        return [latents, module.decode(latents).sample]


def _text_encoder() -> Any:
    config = transformers.UMT5Config(
        vocab_size=32, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2
    )
    return transformers.UMT5EncoderModel(config)


def _audio_encoder() -> Any:
    config = transformers.WhisperConfig(
        vocab_size=32,
        d_model=16,
        encoder_layers=2,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        num_mel_bins=8,
        max_source_positions=20,
        max_target_positions=8,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    return transformers.WhisperModel(config)


def _heard(module: Any) -> list[Any]:
    with torch.no_grad():
        return [module.encoder(noise(1, 8, 40))[0]]


def _audio_tokenizer() -> Any:
    config = transformers.DacConfig(
        encoder_hidden_size=8,
        downsampling_ratios=[2, 2],
        upsampling_ratios=[2, 2],
        decoder_hidden_size=32,
        n_codebooks=2,
        codebook_size=16,
        codebook_dim=4,
        hidden_size=32,
    )
    return transformers.DacModel(config)


def _codes(module: Any) -> list[Any]:
    with torch.no_grad():
        codes = module.encode(noise(1, 1, 64)).audio_codes
        return [codes, module.decode(audio_codes=codes).audio_values]


def _sigmas(scheduler: Any) -> list[Any]:
    scheduler.set_timesteps(4)
    sample = noise(1, 4, 1, 4, 4)
    taken = [sample := scheduler.step(sample, t, sample)[0] for t in scheduler.timesteps]
    return [scheduler.sigmas, scheduler.timesteps, *taken]


def _tokenizer() -> Any:
    words = {"[PAD]": 0, "[UNK]": 1, "a": 2, "red": 3, "three": 4}
    tokenizer = Tokenizer(WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]"
    )


def _ids(tokenizer: Any) -> list[Any]:
    ids = tokenizer(["a red three", "a blue"], padding=True, return_tensors="pt")
    return [ids["input_ids"], ids["attention_mask"]]


def _processor() -> Any:
    return transformers.CLIPImageProcessorPil(
        size={"shortest_edge": 16}, crop_size={"height": 16, "width": 16}, image_mean=[0.3] * 3
    )


def _pixels(processor: Any) -> list[Any]:
    image = (noise(24, 32, 3).clamp(0, 1) * 255).to(torch.uint8).numpy()
    return [processor(image, return_tensors="pt")["pixel_values"]]


def _conditioner() -> Any:
    return diffusers.T2IAdapter(
        in_channels=3, channels=[8, 16], num_res_blocks=1, downscale_factor=4
    )


def _residuals(module: Any) -> list[Any]:
    with torch.no_grad():
        return list(module(noise(1, 3, 16, 16)))


def _adapted(adapter: LowRankAdapter | Any) -> list[Any]:
    """The transformer's outputs with the adapter; what was saved is such a transformer already."""
    if not isinstance(adapter, LowRankAdapter):
        return velocity(adapter)
    module = seeded(wan_transformer)
    adapter.bind(module)
    return velocity(module)


def _reward_head() -> Any:
    return transformers.Qwen2ForSequenceClassification(
        transformers.Qwen2Config(**_TEXT, num_labels=1)
    )


def _safety_head() -> Any:
    return transformers.ViTForImageClassification(transformers.ViTConfig(**_VISION, num_labels=2))


@cache
def cases() -> dict[ComponentKind, Case]:
    """One a kind."""
    tokens = {"input_ids": torch.tensor([[3, 9, 4, 1]])}
    images = {"pixel_values": noise(1, 3, 16, 16)}
    kinds = ComponentKind
    listed = [
        (kinds.DIT, "diffusers.WanTransformer3DModel", wan_transformer, velocity),
        (kinds.VAE, "diffusers.AutoencoderKLWan", _vae, _decoded),
        (kinds.TEXT_ENCODER, "transformers.UMT5EncoderModel", _text_encoder, _called(**tokens)),
        (
            kinds.VISION_ENCODER,
            "transformers.SiglipVisionModel",
            lambda: transformers.SiglipVisionModel(transformers.SiglipVisionConfig(**_VISION)),
            _called(**images),
        ),
        (kinds.AUDIO_ENCODER, "transformers.WhisperModel", _audio_encoder, _heard),
        (kinds.AUDIO_TOKENIZER, "transformers.DacModel", _audio_tokenizer, _codes),
        (
            kinds.REASONER,
            "transformers.Qwen2ForCausalLM",
            lambda: transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**_TEXT)),
            _called(**tokens),
        ),
        (
            kinds.SCHEDULER,
            "diffusers.FlowMatchEulerDiscreteScheduler",
            lambda: diffusers.FlowMatchEulerDiscreteScheduler(shift=3.0),
            _sigmas,
        ),
        (kinds.TOKENIZER, "transformers.PreTrainedTokenizerFast", _tokenizer, _ids),
        (kinds.PROCESSOR, "transformers.CLIPImageProcessorPil", _processor, _pixels),
        (kinds.CONDITIONER, "diffusers.T2IAdapter", _conditioner, _residuals),
        (kinds.ADAPTER, "peft.LoraModel", adapted_transformer, _adapted),
        (
            kinds.REWARD_HEAD,
            "transformers.Qwen2ForSequenceClassification",
            _reward_head,
            _called(**tokens),
        ),
        (
            kinds.SAFETY_HEAD,
            "transformers.ViTForImageClassification",
            _safety_head,
            _called(**images),
        ),
    ]
    return {
        kind: Case(kind=kind, load_id=load_id, make=make, outputs=outputs)
        for kind, load_id, make, outputs in listed
    }
