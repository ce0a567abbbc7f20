"""Writing lessons: begin one, check one, release it."""
