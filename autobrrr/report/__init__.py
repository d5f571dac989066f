"""What a person reads: live lines, the verdict as text."""
