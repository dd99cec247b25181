"""The web console: renders the library's records as HTML.

Templates are in `templates/`; files for browsers are in `assets/`. Every value is escaped when it is put into a page:
markup in a document is shown as text.
"""
