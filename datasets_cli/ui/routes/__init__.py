"""What each address of the page answers: one file a page, whose ``ROUTES`` are all served."""
