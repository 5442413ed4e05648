"""The fastvideo command."""
