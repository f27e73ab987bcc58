"""The only door to egglog: laws compiled to rules, sessions, saturation, workers."""
