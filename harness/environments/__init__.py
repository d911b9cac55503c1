"""Worlds in which an agent acts, one file each."""
