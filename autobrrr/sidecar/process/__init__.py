"""How the background process starts: arguments, its log, reporting readiness."""
