"""Operations on layouts: tile, slice, product, composition, inverses, complements."""
