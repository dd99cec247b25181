"""Moving a tenant to another model: a space built beside the live one, measured, switched to, and back if need be."""
