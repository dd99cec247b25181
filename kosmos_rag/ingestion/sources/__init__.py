"""Where documents come from: each source lists what there is, with an etag of each, and loads one document of it."""
