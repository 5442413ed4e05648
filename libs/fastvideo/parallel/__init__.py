"""Ranks that compute one model together.

Below the torch line. It knows process groups and bytes; it knows no loop and no scheduler.
"""
