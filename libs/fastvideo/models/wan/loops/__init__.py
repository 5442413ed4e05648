"""The loops of Wan, one kernel a module."""
