"""Framed sockets to the agent and to clients, and where the session's socket lies."""
