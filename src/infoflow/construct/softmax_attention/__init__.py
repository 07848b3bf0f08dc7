"""Universal approximation with softmax attention: the paper's constructions, repaired, with bounds."""

from infoflow.construct.softmax_attention.anchors import Anchors
from infoflow.construct.softmax_attention.bumps import ReluBumps
from infoflow.construct.softmax_attention.descent import Bounds, in_context_gd
from infoflow.construct.softmax_attention.grid import grid_approximator
from infoflow.construct.softmax_attention.in_context import in_context_truncated_linear
from infoflow.construct.softmax_attention.lemma_f1 import beta_pair, beta_unique
from infoflow.construct.softmax_attention.losses import Loss
from infoflow.construct.softmax_attention.multi_head import multi_head_truncated_linear
from infoflow.construct.softmax_attention.relu_networks import ReluNetwork, two_layer_attention
from infoflow.construct.softmax_attention.summed_range import summed_range
from infoflow.construct.softmax_attention.table_head import soft_range, table_head
from infoflow.construct.softmax_attention.trajectory import DescentProblem
from infoflow.construct.softmax_attention.truncated_linear import clipped_relu, hard_tanh, relu, truncated_linear

__all__ = [
    "Anchors",
    "Bounds",
    "DescentProblem",
    "Loss",
    "ReluBumps",
    "ReluNetwork",
    "beta_pair",
    "beta_unique",
    "clipped_relu",
    "grid_approximator",
    "hard_tanh",
    "in_context_gd",
    "in_context_truncated_linear",
    "multi_head_truncated_linear",
    "relu",
    "soft_range",
    "summed_range",
    "table_head",
    "truncated_linear",
    "two_layer_attention",
]
