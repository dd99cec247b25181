"""The routes: each sets the identity, calls the library, and tells what came of it."""
