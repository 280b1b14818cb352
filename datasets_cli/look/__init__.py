"""Looking at datasets: which there are, what is known of each, and what their rows hold."""
