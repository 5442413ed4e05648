"""The upstream classes that a component of each kind may be.

Data alone: cards are checked against it where no torch is installed, and the worker loads
nothing that is not named here. A class belongs here when the library that has it loads it from
safetensors and JSON, without code of the checkpoint's own.
"""

from collections.abc import Mapping
from typing import Final

from fastvideo.errors import InvalidField
from fastvideo.model.specs import ComponentKind, ComponentSpec


def _of(library: str, names: str) -> tuple[str, ...]:
    return tuple(f"{library}.{name}" for name in names.split())


UPSTREAM_CLASSES: Final[Mapping[ComponentKind, tuple[str, ...]]] = {
    ComponentKind.DIT: _of(
        "diffusers",
        "CosmosTransformer3DModel Cosmos3OmniTransformer Flux2Transformer2DModel "
        "FluxTransformer2DModel HunyuanVideoTransformer3DModel LTX2VideoTransformer3DModel "
        "LTXVideoTransformer3DModel QwenImageTransformer2DModel SD3Transformer2DModel "
        "SkyReelsV2Transformer3DModel WanTransformer3DModel WanVACETransformer3DModel "
        "ZImageTransformer2DModel",
    ),
    ComponentKind.VAE: _of(
        "diffusers",
        "AutoencoderDC AutoencoderKL AutoencoderKLCosmos AutoencoderKLFlux2 "
        "AutoencoderKLHunyuanVideo AutoencoderKLLTX2Audio AutoencoderKLLTX2Video "
        "AutoencoderKLLTXVideo AutoencoderKLQwenImage AutoencoderKLWan AutoencoderOobleck "
        "AutoencoderTiny",
    ),
    ComponentKind.TEXT_ENCODER: _of(
        "transformers",
        "CLIPTextModel CLIPTextModelWithProjection Gemma3ForConditionalGeneration LlamaModel "
        "Qwen2_5_VLForConditionalGeneration Qwen3Model T5EncoderModel UMT5EncoderModel",
    ),
    ComponentKind.VISION_ENCODER: _of(
        "transformers",
        "CLIPVisionModel CLIPVisionModelWithProjection Dinov2Model SiglipVisionModel",
    ),
    ComponentKind.AUDIO_ENCODER: _of(
        "transformers", "ASTModel ClapAudioModel HubertModel Wav2Vec2Model WhisperModel"
    ),
    ComponentKind.AUDIO_TOKENIZER: _of("transformers", "DacModel EncodecModel MimiModel"),
    ComponentKind.REASONER: _of(
        "transformers",
        "LlamaForCausalLM Qwen2ForCausalLM Qwen2_5OmniForConditionalGeneration "
        "Qwen2_5_VLForConditionalGeneration Qwen3ForCausalLM",
    ),
    ComponentKind.SCHEDULER: _of(
        "diffusers",
        "DDIMScheduler DPMSolverMultistepScheduler EulerDiscreteScheduler "
        "FlowMatchEulerDiscreteScheduler UniPCMultistepScheduler",
    ),
    ComponentKind.TOKENIZER: _of(
        "transformers",
        "AutoTokenizer CLIPTokenizer LlamaTokenizer PreTrainedTokenizerFast Qwen2Tokenizer "
        "T5Tokenizer",
    ),
    # Image processors by the library that computes: one that takes whichever is installed would
    # give other pixels on another machine.
    ComponentKind.PROCESSOR: (
        *_of(
            "transformers",
            "CLIPImageProcessorPil DacFeatureExtractor EncodecFeatureExtractor "
            "SiglipImageProcessorPil Wav2Vec2FeatureExtractor WhisperFeatureExtractor",
        ),
        "diffusers.VaeImageProcessor",
    ),
    ComponentKind.CONDITIONER: _of(
        "diffusers",
        "AnimaTextConditioner CLIPImageProjection ControlNetModel CosmosControlNetModel "
        "FluxControlNetModel QwenImageControlNetModel SD3ControlNetModel T2IAdapter",
    ),
    ComponentKind.ADAPTER: _of("peft", "LoraModel"),
    ComponentKind.REWARD_HEAD: _of(
        "transformers",
        "CLIPModel LlamaForSequenceClassification Qwen2ForSequenceClassification SiglipModel",
    ),
    ComponentKind.SAFETY_HEAD: _of(
        "transformers",
        "BertForSequenceClassification CLIPForImageClassification SiglipForImageClassification "
        "ViTForImageClassification",
    ),
}
"""Kind to the classes that it may be, as `library.Class`."""


def check_class(component: ComponentSpec) -> None:
    """Raise InvalidField unless the component's class is one of its kind.

    The error names the field and the allowed values.
    """
    allowed = UPSTREAM_CLASSES[component.kind]
    if component.load_id not in allowed:
        raise InvalidField(
            f"components.{component.component_id}.load_id",
            component.load_id,
            f"for a component of kind {component.kind}: {', '.join(allowed)}",
            reason="UNKNOWN_COMPONENT_CLASS",
        )
