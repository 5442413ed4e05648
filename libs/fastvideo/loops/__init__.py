"""Loops: the contract that models meet, samplers and guidance."""
