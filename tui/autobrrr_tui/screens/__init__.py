"""Whole screens: one session, all sessions, questions, things to read."""
