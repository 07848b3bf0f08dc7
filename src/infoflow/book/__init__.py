"""The theorem book: statements of the papers, each with its status and its check."""
