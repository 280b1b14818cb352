"""The ``compact`` layout: each step once, frames compressed one by one."""
