"""Wan2.1 text-to-video and its small embedded relative."""
