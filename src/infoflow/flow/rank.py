"""Rows of numbers with as few of them as their rank: bilinear forms, and the directions that a layer keeps."""

import numpy as np


def reduce_rank(psi: np.ndarray, phi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same form sum_k psi_k phi_k' with as few components as its rank (at least one)."""
    for _ in range(2):
        basis, coordinates = independent_rows(psi)
        if len(basis) < len(psi):
            psi, phi = basis, coordinates.T @ phi
        psi, phi = phi, psi
    if not len(psi):
        return np.zeros((1, phi.shape[1])), np.zeros((1, phi.shape[1]))
    return psi, phi


def independent_rows(rows: np.ndarray, tolerance: float = 1e-10) -> tuple[np.ndarray, np.ndarray]:
    """(basis, coordinates) with rows = coordinates @ basis up to rounding.

    A row enters as it is (normalised to largest entry 1) while it is well away from the span of the earlier ones,
    else as the orthonormal remainder, so that coordinates stay small. Independent rows come back unchanged up to
    their scale.
    """
    basis: list[np.ndarray] = []
    frame = np.zeros((0, rows.shape[1]))  # orthonormal, same span
    for row in rows:
        norm = float(np.linalg.norm(row))
        if norm == 0.0:
            continue
        rest = row / norm
        for _ in range(2):
            rest = rest - frame.T @ (frame @ rest)
        size = float(np.linalg.norm(rest))
        if size > tolerance:
            frame = np.vstack([frame, rest / size])
            chosen = row if size > 0.25 else rest
            basis.append(chosen / np.abs(chosen).max())
    if not basis:
        return np.zeros((0, rows.shape[1])), np.zeros((len(rows), 0))
    matrix = np.array(basis)
    coordinates = np.linalg.lstsq(matrix.T, rows.T, rcond=None)[0].T
    coordinates[np.abs(coordinates) < 1e-15 * np.abs(coordinates).max(initial=1.0)] = 0.0
    return matrix, coordinates
