"""Model families, one folder each: cards, programs, components, loops, parity.

A family's cards and programs are data and are read without importing its code.
"""
