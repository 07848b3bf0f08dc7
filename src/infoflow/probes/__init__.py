"""What the heads of a trained or pretrained Transformer do, shown by intervention."""

from infoflow.probes.intervene import intervene, joint_path
from infoflow.probes.modes import head_modes
from infoflow.probes.record import Batch, Keep, Recording, SavedRecording, load, record
from infoflow.probes.references import References, measure_references
from infoflow.probes.shuffle import shuffle_evidence
from infoflow.probes.substitute import substitute
from infoflow.probes.tap import Step

__all__ = [
    "Batch",
    "Keep",
    "Recording",
    "References",
    "SavedRecording",
    "Step",
    "head_modes",
    "intervene",
    "joint_path",
    "load",
    "measure_references",
    "record",
    "shuffle_evidence",
    "substitute",
]
