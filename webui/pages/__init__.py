"""The pages: each a blueprint, or a live page of ``live_pages``."""
