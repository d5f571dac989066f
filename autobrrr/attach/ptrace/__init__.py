"""The injection: stop one thread, have Python call one function, put everything back."""
