"""A family of small real parts, for the kinds of units that no shipped model has."""
