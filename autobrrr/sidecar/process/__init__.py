"""How the background process starts: arguments, leaving the terminal, reporting readiness."""
