"""Few-shot learning by episodes."""
