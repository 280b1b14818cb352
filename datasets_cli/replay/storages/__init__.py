"""Storages: things that hold rows and give copies of them."""
