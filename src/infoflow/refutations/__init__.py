"""Two inputs one state cannot tell apart."""

from infoflow.refutations.collision import Collision, NoCollision
from infoflow.refutations.problem import Adapter
from infoflow.refutations.search import refute

__all__ = ["Adapter", "Collision", "NoCollision", "refute"]
