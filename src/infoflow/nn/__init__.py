"""The one attention, the one Transformer, and how networks are saved."""

from infoflow.nn.attention import Attended, attention, hardmax
from infoflow.nn.config import TransformerConfig
from infoflow.nn.files import load
from infoflow.nn.transformer import States, Transformer, from_saved

__all__ = ["Attended", "States", "Transformer", "TransformerConfig", "attention", "from_saved", "hardmax", "load"]
