"""Computes logged runs again, below the torch line."""
