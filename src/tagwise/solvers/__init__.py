"""One algorithm a file. A solver sees functions and arrays, never labels or models, and says how it ended."""
