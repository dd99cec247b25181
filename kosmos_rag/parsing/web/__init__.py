"""Web pages, EPUB, SVG, and exports of wikis."""
