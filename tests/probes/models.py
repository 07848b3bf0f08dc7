"""Tiny models with random weights, built here: no weights are needed."""

import warnings

import pytest
import torch
from torch import nn

from infoflow.nn import Transformer, TransformerConfig

VOCABULARY = 50
FAMILIES = ("bert", "albert", "gpt2", "llama")


def hugging_face(family: str) -> nn.Module:
    """A three-layer, four-head model of the family; larger weights than usual, so that patterns are not flat."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 48}
    common = sizes | {"vocab_size": VOCABULARY, "initializer_range": 0.3, "bos_token_id": 1, "eos_token_id": 2}
    if family == "bert":
        model = transformers.BertModel(transformers.BertConfig(**common))
    elif family == "albert":
        model = transformers.AlbertForMaskedLM(transformers.AlbertConfig(embedding_size=16, **common))
    elif family == "gpt2":
        small = {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 64}
        kept = {name: value for name, value in common.items() if name not in sizes}
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**small, **kept))
    else:
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(num_key_value_heads=2, **common))
    return model.eval()


def eager(model: nn.Module, inputs: dict[str, torch.Tensor]):  # type: ignore[no-untyped-def]
    """The library's own eager forward pass with attentions and hidden states."""
    before = model.config._attn_implementation
    model.config._attn_implementation = "eager"
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        output = model(**inputs, output_attentions=True, output_hidden_states=True)
    model.config._attn_implementation = before
    return output


def language(documents: int = 3, T: int = 9, padded: bool = True) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(3, VOCABULARY, (documents, T), generator=generator)
    mask = torch.ones_like(ids)
    if padded:
        mask[-1, 6:] = 0
    return {"input_ids": ids, "attention_mask": mask}


def network(**options: object) -> Transformer:
    config = TransformerConfig(dim=3, heads=(2, 3), head_dims=(4, 2), widths=(8, 8), **options)  # type: ignore[arg-type]
    model = Transformer(config)
    model.initialise(torch.Generator().manual_seed(0), scale=3.0)
    return model


class Plain(nn.Module):
    """x + MHA(x), twice: nn.MultiheadAttention without norms."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.MultiheadAttention(8, 2, batch_first=True) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x + layer(x, x, x, need_weights=False)[0]
        return x
