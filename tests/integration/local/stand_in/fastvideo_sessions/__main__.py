"""Stands in for the service of this name."""

from stand_in_service import main

main()
