"""Where parallel work runs, and what the functions of users are that it is given."""
