"""The error that training will end at, before training."""
