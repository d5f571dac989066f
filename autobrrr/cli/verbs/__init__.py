"""One module a verb, imported only when its verb is used."""
