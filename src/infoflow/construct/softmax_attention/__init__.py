"""Universal approximation with softmax attention: the paper's constructions, repaired, with bounds."""

from infoflow.construct.softmax_attention.anchors import Anchors
from infoflow.construct.softmax_attention.lemma_f1 import beta_pair, beta_unique
from infoflow.construct.softmax_attention.multi_head import multi_head_truncated_linear
from infoflow.construct.softmax_attention.table_head import table_head
from infoflow.construct.softmax_attention.truncated_linear import clipped_relu, hard_tanh, relu, truncated_linear

__all__ = [
    "Anchors",
    "beta_pair",
    "beta_unique",
    "clipped_relu",
    "hard_tanh",
    "multi_head_truncated_linear",
    "relu",
    "table_head",
    "truncated_linear",
]
