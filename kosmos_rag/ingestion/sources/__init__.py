"""Document sources. Each lists documents with etags and loads one."""
