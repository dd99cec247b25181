"""The web console's pages: the library's records in, HTML out. Who asks, and what is done, is the service's matter.

Templates are in `templates/`, what browsers fetch beside them in `assets/`. Every value is escaped as it is put into a
page: a document's text is text there, whatever it looks like.
"""
