"""Tiny networks of 23 families of transformers, from configurations: no weights are downloaded."""

from collections.abc import Callable, Mapping

import torch
import transformers
from torch import Tensor, nn

TOKENS, LENGTH, ROWS, CLASSES = 64, 12, 4, 3
# Names under which most configurations know these sizes.
SIZES = {
    "vocab_size": TOKENS,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 32,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "num_labels": CLASSES,
}


def ids() -> dict[str, Tensor]:
    """Rows of tokens, the last two shorter than the others."""
    tokens = torch.randint(5, TOKENS, (ROWS, LENGTH))
    mask = torch.ones(ROWS, LENGTH, dtype=torch.long)
    mask[-2:, -3:] = 0
    return {"input_ids": tokens * mask, "attention_mask": mask}


def pixels() -> dict[str, Tensor]:
    return {"pixel_values": torch.randn(ROWS, 3, 32, 32)}


def sound() -> dict[str, Tensor]:
    return {"input_values": torch.randn(ROWS, 800)}


def spectrum() -> dict[str, Tensor]:
    return {
        "input_features": torch.randn(ROWS, 8, 32),
        "decoder_input_ids": torch.randint(5, TOKENS, (ROWS, LENGTH)),
    }


def both() -> dict[str, Tensor]:
    """Rows of tokens for an encoder, and for its decoder."""
    return {**ids(), "decoder_input_ids": torch.randint(5, TOKENS, (ROWS, LENGTH))}


def images_and_text() -> dict[str, Tensor]:
    return {**ids(), **pixels()}


Family = tuple[str, str, Mapping[str, object], Callable[[], dict[str, Tensor]]]
DECODER = {"num_key_value_heads": 1, "head_dim": 8}
SIDES = {
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "d_model": 16,
}
# Name, class of the model, settings beside or in place of the common ones, inputs.
FAMILIES: tuple[Family, ...] = (
    ("BERT", "BertForSequenceClassification", {}, ids),
    ("RoBERTa", "RobertaForSequenceClassification", {"max_position_embeddings": 40}, ids),
    (
        "DistilBERT",
        "DistilBertForSequenceClassification",
        {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32},
        ids,
    ),
    ("ALBERT", "AlbertForSequenceClassification", {"embedding_size": 8}, ids),
    ("ELECTRA", "ElectraForSequenceClassification", {"embedding_size": 8}, ids),
    (
        "DeBERTa-v2",
        "DebertaV2ForSequenceClassification",
        {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "pooler_hidden_size": 16},
        ids,
    ),
    (
        "ModernBERT",
        "ModernBertForSequenceClassification",
        {"attn_implementation": "sdpa", "cls_token_id": 1, "sep_token_id": 2},
        ids,
    ),
    (
        "GPT-2",
        "GPT2LMHeadModel",
        {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32},
        ids,
    ),
    ("GPT-NeoX", "GPTNeoXForCausalLM", {}, ids),
    ("Llama", "LlamaForCausalLM", DECODER, ids),
    ("Mistral", "MistralForCausalLM", {**DECODER, "sliding_window": 8}, ids),
    ("Qwen3", "Qwen3ForCausalLM", DECODER, ids),
    ("Gemma", "GemmaForCausalLM", DECODER, ids),
    ("Phi", "PhiForCausalLM", {}, ids),
    ("OPT", "OPTForCausalLM", {"ffn_dim": 32, "word_embed_proj_dim": 16}, ids),
    ("BLOOM", "BloomForCausalLM", {"n_layer": 2, "n_head": 2}, ids),
    (
        "T5",
        "T5ForConditionalGeneration",
        {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2},
        both,
    ),
    ("BART", "BartForConditionalGeneration", SIDES, both),
    ("ViT", "ViTForImageClassification", {"image_size": 32, "patch_size": 8}, pixels),
    (
        "Swin",
        "SwinForImageClassification",
        {
            "image_size": 32,
            "patch_size": 4,
            "embed_dim": 8,
            "depths": [1, 1],
            "num_heads": [2, 2],
            "num_attention_heads": [2, 2],
            "window_size": 4,
        },
        pixels,
    ),
    (
        "wav2vec 2.0",
        "Wav2Vec2ForSequenceClassification",
        {
            "conv_dim": (16, 16),
            "conv_kernel": (10, 4),
            "conv_stride": (5, 2),
            "num_feat_extract_layers": 2,
            "num_conv_pos_embeddings": 8,
            "num_conv_pos_embedding_groups": 2,
            "classifier_proj_size": 8,
            "mask_time_prob": 0.0,
        },
        sound,
    ),
    (
        "Whisper",
        "WhisperForConditionalGeneration",
        {
            **SIDES,
            "num_mel_bins": 8,
            "max_source_positions": 16,
            "max_target_positions": 32,
            "decoder_start_token_id": 1,
            "suppress_tokens": None,
            "begin_suppress_tokens": None,
        },
        spectrum,
    ),
    (
        "CLIP",
        "CLIPModel",
        {
            "projection_dim": 8,
            "text_config": SIZES,
            "vision_config": {**SIZES, "image_size": 32, "patch_size": 8},
        },
        images_and_text,
    ),
)


def made(name: str, settings: Mapping[str, object]) -> nn.Module:
    """A network of this class at random weights."""
    cls = getattr(transformers, name)
    return cls(cls.config_class(**{**SIZES, **settings}))
