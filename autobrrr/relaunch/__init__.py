"""Relaunched trials: a script started again and again, unedited, each time measured briefly."""
