"""The norm of an embedding as a count of objects."""
