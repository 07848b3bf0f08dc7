"""The one attention, the one Transformer."""

from infoflow.nn.attention import Attended, attention, hardmax
from infoflow.nn.config import TransformerConfig
from infoflow.nn.transformer import States, Transformer

__all__ = ["Attended", "States", "Transformer", "TransformerConfig", "attention", "hardmax"]
