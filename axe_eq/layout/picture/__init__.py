"""Layouts as pictures: their elements as a grid, their memory, their banks, their differences."""
