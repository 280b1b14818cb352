"""The rules, one file a group, with their inputs, facts and findings."""
