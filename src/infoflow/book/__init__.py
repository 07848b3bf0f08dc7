"""The book of theorems: one entry per statement of the four papers, its status, what is wrong in print, its check.

`iflow.book.entry("softmax.3.9")` is an entry, `iflow.book.check("rank1")` runs the checks of a paper,
`iflow.book.errata("infoflow")` lists what is wrong in print. Importing this costs nothing; a check imports torch.
"""

from infoflow.book.contents import ENTRIES, entry, selected
from infoflow.book.entry import PAPERS, Entry, Erratum, Finding
from infoflow.book.errata import errata
from infoflow.book.run import Checked, check

__all__ = [
    "ENTRIES",
    "PAPERS",
    "Checked",
    "Entry",
    "Erratum",
    "Finding",
    "check",
    "entry",
    "errata",
    "selected",
]
