"""Rules, a file a group, and what they see, know and find."""
