"""Layouts that are not one value: symbolic numbers, unknown sub-layouts, operations on them."""
