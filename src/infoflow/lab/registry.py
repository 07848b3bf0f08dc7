"""Every item of the lab by name; an item's module is imported when it is asked for."""

import importlib

from infoflow.errors import unknown
from infoflow.lab.item import Item

ITEMS: tuple[str, ...] = (
    "infoflow/table11",
    "infoflow/table12",
    "infoflow/recovery",
    "infoflow/positions",
    "infoflow/figures",
    "head_count/synthetic",
    "head_count/retrieval",
    "softmax_attention/figure2",
    "softmax_attention/figure3",
    "softmax_attention/figure4",
    "rank_one/figure1",
)


def find(name: str) -> Item:
    """The item of that name; an unknown one is answered with the nearest."""
    if name not in ITEMS:
        raise unknown("item", name, list(ITEMS))
    module = importlib.import_module(f"infoflow.lab.papers.{name.replace('/', '.')}.item")
    item: Item = module.ITEM
    return item
