"""The saturated e-graph as plain data: classes, alternatives, and which of them may be used."""
