"""Goals: in hindsight, desired goals are replaced by goals that were reached."""
