"""Files of dumps and states: read by their content alone; nothing in them is run or imported."""
