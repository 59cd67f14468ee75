"""The models that have golden files: one function each, the first of a family under its name.

Sizes are odd on purpose: no two dimensions that a mistake could swap are equal, and head sizes leave
vector tails. In a family's first model every grouping (query heads per key head, experts per token)
is larger than one. A function returns the configuration; `generate.py` does the rest.
"""

from collections.abc import Callable

from transformers import GPT2Config, LlamaConfig, MixtralConfig, PreTrainedConfig, Qwen3Config


def gpt2() -> GPT2Config:
    """LayerNorm, learned positions, biases, tanh GELU, tied head; head size 9."""
    return GPT2Config(
        vocab_size=131,
        n_positions=40,
        n_embd=36,
        n_layer=3,
        n_head=4,
        attn_pdrop=0.0,
        embd_pdrop=0.0,
        resid_pdrop=0.0,
        bos_token_id=130,
        eos_token_id=130,
    )


def llama() -> LlamaConfig:
    """RMSNorm, SwiGLU, groups of three query heads, tied head, Llama 3 rotary scaling.

    Of the three rotary frequencies the first is kept, the second interpolated, the third divided.
    """
    return LlamaConfig(
        vocab_size=97,
        hidden_size=36,
        intermediate_size=44,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=2,
        max_position_embeddings=512,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 7000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 256,
        },
        bos_token_id=95,
        eos_token_id=96,
    )


def llama_biases() -> LlamaConfig:
    """Biases everywhere, eight key heads for eight query heads, a head size that is not hidden /
    heads, separate head, plain rotary positions."""
    return LlamaConfig(
        vocab_size=61,
        hidden_size=24,
        intermediate_size=28,
        num_hidden_layers=2,
        num_attention_heads=8,
        num_key_value_heads=8,
        head_dim=6,
        max_position_embeddings=40,
        rms_norm_eps=1e-5,
        attention_bias=True,
        mlp_bias=True,
        tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": 5000.0},
        bos_token_id=59,
        eos_token_id=60,
    )


def llama_one_key_head() -> LlamaConfig:
    """One key head for eight query heads, separate head, rotary scaling of other factors."""
    return LlamaConfig(
        vocab_size=67,
        hidden_size=24,
        intermediate_size=20,
        num_hidden_layers=2,
        num_attention_heads=8,
        num_key_value_heads=1,
        head_dim=14,
        max_position_embeddings=512,
        rms_norm_eps=1e-5,
        tie_word_embeddings=False,
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 500.0,
            "factor": 32.0,
            "low_freq_factor": 1.5,
            "high_freq_factor": 6.0,
            "original_max_position_embeddings": 128,
        },
        bos_token_id=65,
        eos_token_id=66,
    )


def qwen3() -> Qwen3Config:
    """Query and key norms, a head size that is not hidden / heads, separate head."""
    return Qwen3Config(
        vocab_size=101,
        hidden_size=24,
        intermediate_size=52,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=10,
        max_position_embeddings=40,
        rms_norm_eps=1e-6,
        tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": 3000.0},
        bos_token_id=99,
        eos_token_id=100,
    )


def qwen3_windows() -> Qwen3Config:
    """Biases, tied head, two layers of three with a window, as many key heads as query heads."""
    return Qwen3Config(
        vocab_size=71,
        hidden_size=32,
        intermediate_size=28,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=6,
        max_position_embeddings=40,
        rms_norm_eps=1e-6,
        attention_bias=True,
        tie_word_embeddings=True,
        use_sliding_window=True,
        sliding_window=7,
        max_window_layers=1,
        rope_parameters={"rope_type": "default", "rope_theta": 3000.0},
        bos_token_id=69,
        eos_token_id=70,
    )


def mixtral() -> MixtralConfig:
    """Four experts, two for each token, with the load-balancing loss."""
    return MixtralConfig(
        vocab_size=89,
        hidden_size=32,
        intermediate_size=20,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_local_experts=4,
        num_experts_per_tok=2,
        max_position_embeddings=40,
        rms_norm_eps=1e-5,
        tie_word_embeddings=False,
        output_router_logits=True,
        router_aux_loss_coef=0.02,
        rope_parameters={"rope_type": "default", "rope_theta": 5000.0},
        bos_token_id=87,
        eos_token_id=88,
    )


def mixtral_top_1() -> MixtralConfig:
    """Four experts, one for each token, one key head, tied head."""
    return MixtralConfig(
        vocab_size=61,
        hidden_size=20,
        intermediate_size=12,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=6,
        num_local_experts=4,
        num_experts_per_tok=1,
        max_position_embeddings=40,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        output_router_logits=True,
        router_aux_loss_coef=0.05,
        rope_parameters={"rope_type": "default", "rope_theta": 5000.0},
        bos_token_id=59,
        eos_token_id=60,
    )


def mixtral_8_experts() -> MixtralConfig:
    """Eight experts, two for each token, a sliding window."""
    return MixtralConfig(
        vocab_size=53,
        hidden_size=20,
        intermediate_size=12,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        num_local_experts=8,
        num_experts_per_tok=2,
        max_position_embeddings=40,
        rms_norm_eps=1e-5,
        sliding_window=7,
        tie_word_embeddings=False,
        output_router_logits=True,
        router_aux_loss_coef=0.02,
        rope_parameters={"rope_type": "default", "rope_theta": 5000.0},
        bos_token_id=51,
        eos_token_id=52,
    )


def mixtral_8_top_1() -> MixtralConfig:
    """Eight experts, one for each token, of three layers."""
    return MixtralConfig(
        vocab_size=41,
        hidden_size=20,
        intermediate_size=8,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=6,
        num_local_experts=8,
        num_experts_per_tok=1,
        max_position_embeddings=40,
        rms_norm_eps=1e-5,
        tie_word_embeddings=False,
        output_router_logits=True,
        router_aux_loss_coef=0.03,
        rope_parameters={"rope_type": "default", "rope_theta": 5000.0},
        bos_token_id=39,
        eos_token_id=40,
    )


FAMILIES: dict[str, Callable[[], PreTrainedConfig]] = {
    "gpt2": gpt2,
    "llama": llama,
    "llama_biases": llama_biases,
    "llama_one_key_head": llama_one_key_head,
    "qwen3": qwen3,
    "qwen3_windows": qwen3_windows,
    "mixtral": mixtral,
    "mixtral_top_1": mixtral_top_1,
    "mixtral_8_experts": mixtral_8_experts,
    "mixtral_8_top_1": mixtral_8_top_1,
}
