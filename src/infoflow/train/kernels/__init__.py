"""Fused kernels of the training step: Triton on a GPU, plain PyTorch as reference and everywhere else."""
