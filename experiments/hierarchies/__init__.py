"""Class hierarchies, and plankton of classes that are not known."""
