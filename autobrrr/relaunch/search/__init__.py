"""What is searched, and which point comes next. Starts no process."""
