"""The web page: installed datasets in a browser, from a read-only server in this process."""
