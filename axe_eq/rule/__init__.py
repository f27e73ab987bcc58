"""The language of laws and packs: sorts, symbols, variables, primitives, laws."""
