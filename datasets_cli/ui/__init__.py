"""The page: datasets of this disk in a browser, by a server of this process that only reads."""
