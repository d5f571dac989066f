"""Remedies and edits that fit a verdict, with what each would bring."""
