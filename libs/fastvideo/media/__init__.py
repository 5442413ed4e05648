"""Frames to files that people can open: MP4 video, PNG contact sheets, safetensors.

The same input gives the same bytes with the same libraries, so that a re-run after a crash
stores the same artifact.
"""
