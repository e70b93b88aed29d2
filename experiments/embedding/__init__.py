"""The embedding tool and its explorer."""
