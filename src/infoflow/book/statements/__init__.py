"""Statements of the papers as code that no verb needs: what the book runs to check them."""
