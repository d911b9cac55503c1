"""Learned, named know-how as code (the learned skills themselves live in the data directory)."""
