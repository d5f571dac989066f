"""How the call of a module is led through layers of ours."""
