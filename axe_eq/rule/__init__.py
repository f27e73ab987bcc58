"""The term language that laws and packs are written in: sorts, symbols, variables, primitives, laws."""
