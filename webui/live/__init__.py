"""Live pages: how a page registers itself, and how changed regions reach its viewers."""
