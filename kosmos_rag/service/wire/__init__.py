"""What goes over the wire: questions as they may be asked, and the library's records as they are told."""
