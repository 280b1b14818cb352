"""Frames of another size: cropped at their centre, or resized."""
