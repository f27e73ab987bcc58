"""Normal forms of layouts, and the exact decision of equality."""
