"""The papers' full protocols on photographs."""
