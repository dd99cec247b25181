"""Where documents come from: each source lists what there is, with marks of change, and loads one document of it."""
