"""Typed caches, each entry addressed by a key that holds all that can change its meaning."""
