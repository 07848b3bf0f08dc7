"""The low-rank factors a network was built with, as a witness in its file.

A form x' A y = <psi x, phi y> has many factorisations: signs, rotations, whatever a singular value decomposition of
this or that library gives. A reader takes the builder's and bounds |psi' phi - A| entry by entry, sup over the box of
features at most 1; the sum enters the error of the message, so nothing is trusted.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from infoflow.errors import InfoFlowError
from infoflow.flow.normal_form import Message, NormalForm

SAME_FORM = 1e-9  # factors further from the target's form than this share of it belong to another target


def factors_of(form: NormalForm) -> list[dict[str, Any]]:
    """Plain values for the messages neither of whose factors is a selection of coordinates; those have one form."""
    return [
        {"term": term.index + 1, "child": m.child + 1, "psi": m.psi.tolist(), "phi": m.phi.tolist()}
        for term in form.terms
        for m in term.messages
        if not (_selects(m.psi) or _selects(m.phi))
    ]


def with_factors(form: NormalForm, factors: Any) -> NormalForm:
    """The form with the messages factored as stated, each difference added to the message's defect."""
    stated = _parse(factors, len(form.features))
    terms = []
    for term in form.terms:
        messages = [
            _refactored(m, *stated[key]) if (key := (term.index, m.child)) in stated else m for m in term.messages
        ]
        terms.append(replace(term, messages=tuple(messages)))
    return replace(form, terms=tuple(terms))


def _refactored(message: Message, psi: np.ndarray, phi: np.ndarray) -> Message:
    wanted = message.psi.T @ message.phi
    off = float(np.abs(psi.T @ phi - wanted).sum())
    if not off <= SAME_FORM * float(np.abs(wanted).sum()):
        return message
    bound = min(float((np.abs(psi).sum(1) * np.abs(phi).sum(1)).sum()), float(np.abs(psi.T @ phi).sum()))
    return replace(message, psi=psi, phi=phi, bound=max(bound, message.bound), defect=message.defect + off)


def _parse(factors: Any, features: int) -> dict[tuple[int, int], tuple[np.ndarray, np.ndarray]]:
    """A file is hostile until it is read: shapes and finite numbers, or one sentence."""
    result = {}
    try:
        for entry in factors:
            psi, phi = (np.array(entry[name], dtype=np.float64) for name in ("psi", "phi"))
            if psi.shape != phi.shape or psi.ndim != 2 or psi.shape[1] != features or not len(psi):
                raise ValueError
            if not math.isfinite(float(np.abs(psi).sum() + np.abs(phi).sum())):
                raise ValueError
            result[int(entry["term"]) - 1, int(entry["child"]) - 1] = (psi, phi)
    except (TypeError, ValueError, KeyError, OverflowError):
        raise InfoFlowError(
            f"expected factors as rows of {features} finite numbers with term and child, the header has others; "
            "build the network again."
        ) from None
    return result


def _selects(rows: np.ndarray) -> bool:
    """Every row is a multiple of a unit vector."""
    return bool((np.count_nonzero(rows, axis=1) <= 1).all())
