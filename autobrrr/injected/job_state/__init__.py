"""The job's own state: what a second run of its code would change, and how that is kept and put back."""
