"""Pictures in general: grids of cells as SVG and as text, and the pages that hold them.

Nothing here knows what is drawn; layouts, proofs and schedules bring their own cells.
"""
